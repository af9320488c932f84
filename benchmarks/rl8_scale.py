"""The cost of a transition of ``rl8_ppo`` and ``rl8_recurrent_ppo`` from 1,024 to 65,536 envs.

Each number of envs collects and learns on one thread, whose processor time is divided by the
number of transitions. Memory is the peak of a process of its own.

    python benchmarks/rl8_scale.py [--rounds 3] [--envs 1024 4096 16384 65536]
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import torch
from measure import machine, ratio_summary, run_process, summary, write
from rl8_speed import KINDS, NETWORKS, make

CODE = """
import sys
sys.path.insert(0, {folder!r})
from measure import peak_mib
from rl8_scale import cost
print(*cost({kind!r}, {network!r}, {num_envs}, {rounds}), peak_mib())
"""


def cost(kind: str, network: str, num_envs: int, rounds: int) -> list[float]:
    """Return processor nanoseconds per transition in each round, after one to warm up."""
    torch.set_num_threads(1)
    algorithm = make("rlox", kind, network, num_envs)
    transitions = num_envs * algorithm.hparams.horizon
    found = []
    for _ in range(rounds + 1):
        started = time.process_time()
        algorithm.collect()
        algorithm.step()
        found.append(1e9 * (time.process_time() - started) / transitions)
    return found[1:]


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/rl8_scale.json`` after each kind."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--envs", type=int, nargs="*", default=[1024, 4096, 16384, 65536])
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--networks", nargs="*", help="names of the rows; all by default")
    given = parser.parse_args()
    result: dict[str, Any] = {
        "machine": machine(["rlox-core", "rlox-rl8", "torch", "tensordict", "torchrl"]),
        "rounds": given.rounds,
        "threads": 1,
        "rows": [],
    }
    folder = os.path.dirname(os.path.abspath(__file__))
    for kind in given.kinds:
        for network in NETWORKS[kind]:
            if given.networks and network not in given.networks:
                continue
            smallest: list[float] = []
            for num_envs in given.envs:
                code = CODE.format(folder=folder, kind=kind, network=network, num_envs=num_envs,
                                   rounds=given.rounds)  # fmt: skip
                *found, peak = map(float, run_process(code)[2].split())
                smallest = smallest or found
                row = {
                    "kind": kind,
                    "network": network,
                    "num_envs": num_envs,
                    "ns_per_transition": summary(found),
                    "share_of_fewest": ratio_summary(found, smallest),
                    "peak_mib": peak,
                }
                result["rows"].append(row)
                print(kind, network, num_envs, f"{row['ns_per_transition']['median']:.0f} ns",
                      f"{row['share_of_fewest']['median']:.2f} of the fewest's,",
                      f"{peak:.0f} MiB", flush=True)  # fmt: skip
            write("rl8_scale", result)


if __name__ == "__main__":
    main()
