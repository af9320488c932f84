"""Wall-clock and processor time before anything happens: imports, ``rlox list``, a training.

python benchmarks/start_up.py [--rounds 15]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from measure import machine, run_process, summary, write

COMMANDS = {
    "python, nothing imported": "pass",
    "import rlox": "import rlox",
    "rlox.list_algorithms()": "import rlox; rlox.list_algorithms()",
    "rlox list": "import sys; from rlox.cli import main; sys.argv = ['rlox', 'list']; main()",
    "import torch": "import torch",
    "rlox.algorithms.PPO": "from rlox.algorithms import PPO",
    "rlox.make, PPO": "import rlox; rlox.make('ppo', env='CartPole-v1')",
    "and 4096 env steps of it": "import rlox; rlox.make('ppo', env='CartPole-v1').train(4096)",
}


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/start_up.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    where = machine(["rlox-core", "rlox-native", "torch"])
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(rounds + 1):
        for name, code in COMMANDS.items():
            wall_clock, used, _ = run_process(code)
            runs[name].append((wall_clock, used))
    rows = {}
    for name, figures in runs.items():
        wall, processor = zip(*figures[1:], strict=True)
        rows[name] = {"wall": in_milliseconds(wall), "processor": in_milliseconds(processor)}
        print(
            f"{name:28s} {rows[name]['wall']['median']:8.1f} ms, of the processor "
            f"{rows[name]['processor']['median']:8.1f} ms"
        )
    print(write("start_up", {"rounds": rounds, "machine": where, "milliseconds": rows}))


def in_milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median with its spread."""
    return {name: round(value * 1e3, 1) for name, value in summary(seconds).items()}


if __name__ == "__main__":
    main()
