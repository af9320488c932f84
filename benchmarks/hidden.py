"""Updates in Rust of three unequal hidden layers next to two equal ones.

Processor time of the gradient steps alone, in turn, over the multiplications of their matrix
products. Batches have 256 rows, and each algorithm its default activation.

    python benchmarks/hidden.py [--rounds 7]
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import Any

import numpy as np
import rlox
import torch
from measure import machine, ratio_summary, summary, time_by_part, write
from rlox_offline.datasets import Dataset

EQUAL, UNEQUAL = (256, 256), (256, 128, 64)

BATCH = 256

ROLLOUTS: dict[str, Any] = {"n_envs": 8, "n_steps": 128, "n_epochs": 4}
REPLAY: dict[str, Any] = {"learning_starts": 0, "steps_per_iteration": 200}
SPREAD: dict[str, Any] = {**ROLLOUTS, "env_backend": "native_teams"}

ALGORITHMS: dict[str, tuple[str, dict[str, Any], int]] = {
    "ppo": ("CartPole-v1", ROLLOUTS, 1024),
    "sac": ("Pendulum-v1", REPLAY, 200),
    "dqn": ("CartPole-v1", {**REPLAY, "train_freq": 1, "gradient_steps": 1}, 200),
    "iql": ("", {}, 200),
    "mappo": ("mpe2/simple_spread_v3", SPREAD, 1024),
}
"""Env, options, and env steps of a turn, or gradient steps; IQL's data has HalfCheetah's sizes."""

PASSES: dict[str, list[tuple[tuple[int, int], int, int]]] = {
    "ppo": [((4, 2), 3, 1), ((4, 1), 3, 1)],
    "sac": [((3, 2), 4, 1), ((4, 1), 12, 2)],
    "dqn": [((4, 2), 4, 1)],
    "iql": [((17, 6), 3, 1), ((17, 1), 5, 1), ((23, 1), 8, 2)],
    "mappo": [((21, 5), 3, 1), ((57, 1), 3, 1)],
}
"""Inputs and outputs of networks, how often a row is multiplied by all layers, and without whose
first layer: no gradient goes to observations."""


def multiplications(name: str, hidden: tuple[int, ...]) -> int:
    """Return an algorithm's multiplications for a row in a gradient step."""
    found = 0
    for (inputs, outputs), passes, without in PASSES[name]:
        layers = [a * b for a, b in pairwise((inputs, *hidden, outputs))]
        found += passes * sum(layers) - without * layers[0]
    return found


def make(name: str, hidden: tuple[int, ...]) -> Any:
    """Return an algorithm that learns in Rust."""
    env, options, _ = ALGORITHMS[name]
    where: dict[str, Any] = {"env": env} if env else {"dataset": data()}
    common = {"hidden": hidden, "batch_size": BATCH, "backend": "native", "seed": 0}
    making: Any = rlox.make  # of any name
    return making(name, **where, **common, **options)


def data() -> Dataset:
    """Return random transitions."""
    rng, n = np.random.default_rng(0), 4_000
    obs, next_obs = rng.normal(size=(2, n, 17)).astype(np.float32)
    actions = rng.uniform(-1, 1, (n, 6)).astype(np.float32)
    columns = {"obs": obs, "next_obs": next_obs, "actions": actions}
    columns["rewards"] = rng.normal(size=n).astype(np.float32)
    columns["terminated"] = np.zeros(n, bool)
    columns["truncated"] = np.arange(n) % 1_000 == 999
    return Dataset(columns, normalize=False)


def update_milliseconds(algorithm: Any, steps: int) -> float:
    """Return the processor time of the gradient steps in a short training."""
    learner = algorithm.learner.learner
    parts: Any = [(learner, "update" if hasattr(learner, "update") else "step", "update")]
    return time_by_part(lambda: algorithm.train(steps), parts, 1)["update"]


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/hidden.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    where, rows = machine(["rlox-core", "rlox-native", "torch"]), []
    for name, (_, _, steps) in ALGORITHMS.items():
        made = {hidden: make(name, hidden) for hidden in (EQUAL, UNEQUAL)}
        spent: dict[tuple[int, ...], list[float]] = {hidden: [] for hidden in made}
        for i in range(rounds + 1):
            for hidden, algorithm in made.items():
                milliseconds = update_milliseconds(algorithm, steps)
                if i:  # the first turn fills caches
                    spent[hidden].append(milliseconds)
        products = multiplications(name, UNEQUAL) / multiplications(name, EQUAL)
        ratio = ratio_summary(spent[UNEQUAL], spent[EQUAL])
        rows.append(
            {
                "algorithm": name,
                "learner": str(made[UNEQUAL].learner),
                "milliseconds_of_a_turn": {
                    "x".join(map(str, k)): summary(v) for k, v in spent.items()
                },
                "time_over_equal": ratio,
                "multiplications_over_equal": products,
                "time_per_multiplication": {k: v / products for k, v in ratio.items()},
            }
        )
        print(
            name, f"{ratio['median']:.2f} of the time, {products:.2f} of the products", flush=True
        )
    result = {"equal": EQUAL, "unequal": UNEQUAL, "batch_size": BATCH, "rounds": rounds}
    print(write("hidden", {**result, "machine": where, "rows": rows}))


if __name__ == "__main__":
    main()
