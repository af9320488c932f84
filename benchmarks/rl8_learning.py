"""Three control tasks learnt by rlox and rl8 1.0 with the same seeds and options.

The envs are those of the examples, 64 copies each, with default networks and one thread. A row has
the mean return of each horizon as collected, so a figure at n belongs to n env steps.

The reversed discounted returns that scale rewards start at 0 in each horizon, even where envs are
not reset after it; rlox and rl8 also run with returns that continue (``_carried``).

    python benchmarks/rl8_learning.py [--seeds 20] [--tasks cartpole mountain_car pendulum]
        [--contenders rlox rl8] [--processes 1]

rl8 need not share an environment with rlox: a folder that has it goes on ``PYTHONPATH``.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import statistics
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from measure import machine, write

CONTENDERS = {
    "rlox": ("rlox.rl8", False),
    "rl8": ("rl8", False),
    "rlox_carried": ("rlox.rl8", True),
    "rl8_carried": ("rl8", True),
}
"""Module, and whether reversed returns continue over horizons."""
RETURNS = "reversed_discounted_returns"
TASKS = {
    "cartpole": ("CartPole", 40),
    "mountain_car": ("MountainCar", 24),
    "pendulum": ("Pendulum", 24),
}
"""Class in ``examples/rl8_<task>.py``, and horizons of a training."""
ENVS, LAST = 64, 4


def example(task: str) -> ModuleType:
    """Return the module of an rl8 example, registered so that torch can compile its code."""
    path = Path(__file__).parents[1] / "examples" / f"rl8_{task}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def learn(contender: str, task: str, seed: int) -> dict[str, Any]:
    """Return the mean returns of a training's horizons, and its processor seconds."""
    module = example(task)
    name, horizons = TASKS[task]
    torch.manual_seed(seed)
    where, carried = CONTENDERS[contender]
    package = importlib.import_module(where)
    config = package.AlgorithmConfig(num_envs=ENVS, device="cpu", **module.OPTIONS)
    # rl8 compares with these bounds, some of which its own class of envs has
    bounds = {"max_num_envs": ENVS, "max_horizon": config.horizon}
    algorithm = config.build(type(name, (getattr(module, name),), bounds))
    started = time.process_time()
    returns = []
    for _ in range(horizons):
        returns.append(round(float(algorithm.collect()["returns/mean"]), 3))
        last = algorithm.buffer[RETURNS][:, -1].clone()
        algorithm.step()
        if carried:
            algorithm.buffer[RETURNS][:, -1] = last
    seconds = round(time.process_time() - started, 2)
    steps = ENVS * config.horizon
    return {"seed": seed, "env_steps": steps, "returns": returns, "processor_seconds": seconds}


def final(run: dict[str, Any]) -> float:
    """Return the mean of the last horizons, from one reset to the next."""
    return float(statistics.mean(run["returns"][-LAST:]))


def horizons_until(bound: float, runs: list[dict[str, Any]]) -> int | None:
    """Return the horizons until the mean over seeds, as of :func:`final`, reaches ``bound``.

    ``None`` if it never does.
    """
    curve = [statistics.mean(x) for x in zip(*(run["returns"] for run in runs), strict=True)]
    for n in range(LAST, len(curve) + 1):
        if statistics.mean(curve[n - LAST : n]) >= bound - 1e-3:  # finals are rounded
            return n
    return None


def difference(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Return the difference of two means, and its standard error; 0 with one seed each."""
    n = len(ours)
    variances = [statistics.variance(x) if n > 1 else 0.0 for x in (ours, theirs)]
    return {
        "mean": round(statistics.mean(ours) - statistics.mean(theirs), 3),
        "standard_error": round((sum(variances) / n) ** 0.5, 3),
    }


def compared(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return a task's trainings and, if rl8 is among them, the others' differences from it."""
    finals = {name: [round(final(run), 3) for run in kept] for name, kept in runs.items()}
    found: dict[str, Any] = {
        "final": finals,
        "env_steps_of_a_horizon": next(iter(runs.values()))[0]["env_steps"],
    }
    if "rl8" in finals:
        differences = {k: difference(v, finals["rl8"]) for k, v in finals.items() if k != "rl8"}
        bound = statistics.mean(finals["rl8"])
        errors = {k: 2 * v["standard_error"] for k, v in differences.items()}
        found["difference_from_rl8"] = differences
        found["horizons_until_final_of_rl8"] = {
            name: horizons_until(bound, kept) for name, kept in runs.items()
        }
        found["horizons_until_within_two_standard_errors"] = {
            name: horizons_until(bound - error, runs[name]) for name, error in errors.items()
        }
    return {**found, "runs": runs}


def prepare() -> None:
    """Make a process quiet and use one thread."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def main() -> None:
    """Train, and write ``benchmarks/results/<processor>/rl8_learning_<task>.json`` each seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--contenders", nargs="*", choices=CONTENDERS, default=["rlox", "rl8"])
    parser.add_argument("--processes", type=int, default=1, help="trainings at once")
    given = parser.parse_args()
    result: dict[str, Any] = {
        "machine": machine(["rlox-core", "rlox-rl8", "torch", "tensordict", "torchrl", "rl8"]),
        "threads": 1,
        "num_envs": ENVS,
    }
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.processes, context, prepare) as pool:
        for task in given.tasks:
            runs: dict[str, list[dict[str, Any]]] = {name: [] for name in given.contenders}
            order = [(name, seed) for seed in range(given.seeds) for name in runs]
            futures = [pool.submit(learn, name, task, seed) for name, seed in order]
            for (name, seed), future in zip(order, futures, strict=True):
                run = future.result()
                runs[name].append(run)
                print(task, name, seed, round(final(run), 2), run["processor_seconds"], flush=True)
                if name == given.contenders[-1]:
                    print(write(f"rl8_learning_{task}", {**result, **compared(runs)}), flush=True)


if __name__ == "__main__":
    main()
