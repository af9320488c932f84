"""How long a user waits before anything happens.

python benchmarks/start_up.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable

from measure import interleave, machine, summary, write

COMMANDS = {
    "python, nothing imported": "pass",
    "import rlox": "import rlox",
    "rlox.list_algorithms()": "import rlox; rlox.list_algorithms()",
    "rlox list": "import sys; from rlox.cli import main; sys.argv = ['rlox', 'list']; main()",
    "import torch": "import torch",
    "rlox.algorithms.PPO": "from rlox.algorithms import PPO",
}


def main() -> None:
    """Measure and write ``benchmarks/results/start_up.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    where = machine(["rlox-core", "torch"])

    def process(code: str) -> Callable[[], object]:
        return lambda: subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=False
        )

    contenders = {name: process(code) for name, code in COMMANDS.items()}
    interleave(contenders, 1)
    rows = {}
    for name, seconds in interleave(contenders, rounds).items():
        rows[name] = {k: round(v * 1e3, 1) for k, v in summary(seconds).items()}
        print(f"{name:28s} {rows[name]['median']:8.1f} ms")
    print(write("start_up", {"rounds": rounds, "machine": where, "milliseconds": rows}))


if __name__ == "__main__":
    main()
