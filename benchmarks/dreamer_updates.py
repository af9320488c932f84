"""Updates of DreamerV3: rlox and sheeprl, eager and compiled, and torchrl; one thread each.

python benchmarks/dreamer_updates.py --python ENV/bin/python [--torchrl ENV/bin/python]
[--cases debug 1m images] [--compiled rlox sheeprl]

An update is one gradient step of world model, actor and critic on a batch of sequences. Only rlox
draws the batch and writes the states back; the others get one. sheeprl runs ``dreamer_v3_5``,
torchrl a bare loop over its losses, networks and optimiser. All have the sizes, the block GRU and
the optimiser of the authors' latest code; torchrl's decoder has transposed convolutions, the others
double an image and convolve. Each side stays in a process of its own, idle during the others'
turns. Compiling takes minutes before the first turn.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from dreamer_programs import RLOX, SHEEPRL, TORCHRL
from dreamer_sizes import SIZES, sheeprl_options
from measure import Side, kept, machine, run_in_turns, summary, write

UPDATES = {"debug": 20, "1m": 2, "images": 2}
"""Updates of a turn."""


def main() -> None:
    """Measure, print and write ``benchmarks/results/<processor>/dreamer_updates.json``."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", required=True, help="interpreter with sheeprl")
    parser.add_argument("--torchrl", default=sys.executable, help="interpreter with torchrl")
    parser.add_argument("--cases", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument(
        "--compiled", nargs="*", choices=["rlox", "sheeprl"], default=[],
        help="run these with torch.compile too",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    result: dict[str, Any] = {
        "machine": {**machine(["rlox-dreamer", "torch"]), "load": os.getloadavg()[0]},
        "clock": "processor time of the process",
        "cases": kept("dreamer_updates").get("cases", {}),
    }
    for case in given.cases:
        result["cases"][case] = compare(
            case, given.python, given.torchrl, given.rounds, given.compiled
        )
        print(case, json.dumps(result["cases"][case], indent=2), flush=True)
    print(write("dreamer_updates", result))


def compare(
    case: str, python: str, torchrl: str, rounds: int, compiled: list[str]
) -> dict[str, Any]:
    """Return updates per second of each contender, and rlox's over the others'."""
    rlox = RLOX.replace("DEVICE", "'cpu'")
    programs = {
        "rlox": (rlox.replace("BACKEND", "'torch'"), sys.executable),
        "sheeprl": (SHEEPRL.replace("COMPILED", "False"), python),
        "torchrl": (TORCHRL, torchrl),
    }
    others = {
        "rlox": (rlox.replace("BACKEND", "'torch-compile'"), sys.executable),
        "sheeprl": (SHEEPRL.replace("COMPILED", "True"), python),
    }
    programs |= {f"{name}, compiled": others[name] for name in compiled}
    sizes = SIZES[case]
    options = sheeprl_options(sizes, "seen")
    sides = {
        name: Side(
            program.replace("SIZE", repr(sizes)).replace("OPTIONS", repr(options)),
            interpreter,
            UPDATES[case],
            warm_up=3,
        )
        for name, (program, interpreter) in programs.items()
    }
    versions = run_in_turns(sides, rounds)
    speeds = {name: side.processor_speeds for name, side in sides.items()}
    return {
        "rounds": rounds,
        "sizes": sizes,
        "versions": versions,
        "updates_per_second": {name: summary(found) for name, found in speeds.items()},
        "over": {
            f"{ours} over {theirs}": summary(
                [a / b for a, b in zip(speeds[ours], speeds[theirs], strict=True)]
            )
            for ours in programs
            for theirs in programs
            if ours.startswith("rlox") and not theirs.startswith("rlox")
        },
    }


if __name__ == "__main__":
    main()
