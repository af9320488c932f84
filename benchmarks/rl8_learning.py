"""Three control tasks learnt by rlox and rl8 1.0, from the same seeds with the same options.

The envs are those of the examples, 64 copies each, with default networks and one thread. A row has
the mean return of each horizon as it was collected, so that a figure at n is of n env steps.

    python benchmarks/rl8_learning.py [--seeds 5] [--tasks cartpole mountain_car pendulum]
        [--kept FILE]

Runs of rl8 are taken from a file of earlier results if one is given. rl8 need not share an
environment with rlox: a folder that has it goes on ``PYTHONPATH``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from measure import machine, write

CONTENDERS = {"rlox": "rlox.rl8", "rl8": "rl8"}
TASKS = {
    "cartpole": ("CartPole", 40),
    "mountain_car": ("MountainCar", 24),
    "pendulum": ("Pendulum", 24),
}
"""Class in ``examples/rl8_<task>.py``, and horizons of a training."""
ENVS, LAST = 64, 4


def example(task: str) -> ModuleType:
    """Return the module of an example of rl8's."""
    path = Path(__file__).parents[1] / "examples" / f"rl8_{task}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def learn(contender: str, task: str, seed: int) -> dict[str, Any]:
    """Return the mean returns of a training's horizons, and the processor's seconds."""
    module = example(task)
    name, horizons = TASKS[task]
    torch.manual_seed(seed)
    package = importlib.import_module(CONTENDERS[contender])
    config = package.AlgorithmConfig(num_envs=ENVS, device="cpu", **module.OPTIONS)
    # rl8 compares with these bounds, of which its own class of envs has some
    bounds = {"max_num_envs": ENVS, "max_horizon": config.horizon}
    algorithm = config.build(type(name, (getattr(module, name),), bounds))
    started = time.process_time()
    returns = []
    for _ in range(horizons):
        returns.append(round(float(algorithm.collect()["returns/mean"]), 3))
        algorithm.step()
    seconds = round(time.process_time() - started, 2)
    steps = ENVS * config.horizon
    return {"seed": seed, "env_steps": steps, "returns": returns, "processor_seconds": seconds}


def final(run: dict[str, Any]) -> float:
    """Return the mean of the last horizons, which are those from one reset to the next."""
    return float(statistics.mean(run["returns"][-LAST:]))


def horizons_until(bound: float, runs: list[dict[str, Any]]) -> int | None:
    """Return after how many horizons means as those of :func:`final`, over seeds, are ``bound``.

    ``None``: they are not.
    """
    curve = [statistics.mean(x) for x in zip(*(run["returns"] for run in runs), strict=True)]
    for n in range(LAST, len(curve) + 1):
        if statistics.mean(curve[n - LAST : n]) >= bound:
            return n
    return None


def main() -> None:
    """Train and write ``benchmarks/results/<processor>/rl8_learning.json`` after each task."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=TASKS)
    parser.add_argument("--kept", type=Path, help="earlier results, of which rl8's runs are taken")
    given = parser.parse_args()
    earlier = json.loads(given.kept.read_text()) if given.kept else {}
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    packages = ["rlox-core", "rlox-rl8", "torch", "tensordict", "torchrl"]
    result: dict[str, Any] = {"machine": machine(packages), "threads": 1, "num_envs": ENVS}
    if given.kept:
        result["machine_of_rl8"] = earlier["machine"]
    result["tasks"] = {}
    for task in given.tasks:
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
        if given.kept:
            runs["rl8"] = earlier["tasks"][task]["runs"]["rl8"]
        for seed in range(given.seeds):
            for name in ["rlox"] if given.kept else runs:
                kept = runs[name]
                kept.append(learn(name, task, seed))
                print(task, name, seed, round(final(kept[-1]), 2),
                      kept[-1]["processor_seconds"], flush=True)  # fmt: skip
        finals = {name: [round(final(run), 3) for run in kept] for name, kept in runs.items()}
        bound = statistics.mean(finals["rl8"])
        until = {name: horizons_until(bound, kept) for name, kept in runs.items()}
        result["tasks"][task] = {
            "final": finals,
            "env_steps_of_a_horizon": runs["rlox"][0]["env_steps"],
            "horizons_until_final_of_rl8": until,
            "runs": runs,
        }
        print(task, {k: round(statistics.mean(v), 2) for k, v in finals.items()}, flush=True)
        print(write("rl8_learning", result), flush=True)


if __name__ == "__main__":
    main()
