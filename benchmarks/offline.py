"""Gradient steps per second of the offline algorithms: rlox and d3rlpy.

Equal networks (two layers of 256), batch size, data and one torch thread each, both in one process
and in turn, so that a busy machine slows both alike. A gradient step includes drawing its
minibatch; d3rlpy runs without its loop and its logging. The third contender is the floor: the
matrix products of rlox's steps alone, in torch.

    python benchmarks/offline.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import rlox
import torch
from measure import interleave, machine, ratio_summary, summary, write
from products import Products, network
from rlox_offline.datasets import Dataset

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import d3rlpy

OBS_DIM, ACT_DIM = 17, 6
"""HalfCheetah's."""

N, EPISODE, BATCH = 20_000, 1_000, 256

STEPS = {"bc": 200, "td3_bc": 100, "iql": 100, "cql": 10}
"""Gradient steps of one run."""

WIDTH = 256
POLICY = (OBS_DIM, WIDTH, WIDTH, ACT_DIM)
GAUSSIAN = (OBS_DIM, WIDTH, WIDTH, 2 * ACT_DIM)
VALUE = (OBS_DIM, WIDTH, WIDTH, 1)
CRITIC = (OBS_DIM + ACT_DIM, WIDTH, WIDTH, 1)


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/offline.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    where = machine(["rlox-core", "rlox-native", "rlox-offline", "d3rlpy", "torch"])
    data, rows = columns(), []
    for name, steps in STEPS.items():
        contenders = {
            "rlox": ours(name, data, steps),
            "d3rlpy": theirs(name, data, steps),
            "products": floor(name, steps),
        }
        interleave(contenders, 1)
        seconds = interleave(contenders, arguments.rounds)
        speeds = {who: [steps / s for s in runs] for who, runs in seconds.items()}
        ratio = ratio_summary(speeds["rlox"], speeds["d3rlpy"])
        share = ratio_summary(speeds["rlox"], speeds["products"])
        rows.append(
            {
                "algorithm": name,
                "gradient_steps_per_second": {w: summary(v) for w, v in speeds.items()},
                "ratio_to_d3rlpy": ratio,
                "share_of_products": share,
            }
        )
        print(
            f"{name:7s} rlox {summary(speeds['rlox'])['median']:8.1f}/s  "
            f"d3rlpy {summary(speeds['d3rlpy'])['median']:8.1f}/s  "
            f"{ratio['median']:5.2f}x ({ratio['min']:.2f}-{ratio['max']:.2f})  "
            f"products {share['median']:4.0%}",
            flush=True,
        )
    result = {"batch_size": BATCH, "rounds": arguments.rounds, "machine": where, "rows": rows}
    print(write("offline", result))


def columns() -> dict[str, Any]:
    """Return a large random dataset."""
    rng = np.random.default_rng(0)
    return {
        "obs": rng.normal(size=(N, OBS_DIM)).astype(np.float32),
        "next_obs": rng.normal(size=(N, OBS_DIM)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (N, ACT_DIM)).astype(np.float32),
        "rewards": rng.normal(size=N).astype(np.float32),
        "terminated": np.zeros(N, bool),
        "truncated": np.arange(N) % EPISODE == EPISODE - 1,
    }


def ours(name: str, data: dict[str, Any], steps: int) -> Callable[[], Any]:
    """Return a run of rlox."""
    make: Any = rlox.make  # of any name
    algorithm = make(name, dataset=Dataset(data, normalize=False), batch_size=BATCH)
    return lambda: algorithm.train(steps)


def floor(name: str, steps: int) -> Callable[[], Any]:
    """Return a run of the matrix products of a run's gradient steps, one after the other."""
    products = Products(BATCH)
    policy, value = network(*(GAUSSIAN if name == "cql" else POLICY)), network(*VALUE)
    critics, targets = ([network(*CRITIC) for _ in range(2)] for _ in range(2))
    for step in range(2):
        if name == "bc":
            products.learn(policy)
            continue
        for weights in targets:
            products.forward(weights)
        if name == "iql":
            products.learn(value)
            products.forward(value)
            products.forward(value)
        else:
            products.forward(policy)
        # TD3+BC's policy steps every other time
        if name != "td3_bc" or step:
            products.learn(policy)
        # up the values of one critic, or of the smaller of two
        for critic in critics[: {"td3_bc": step, "iql": 0, "cql": 2}[name]]:
            products.backward(critic, products.forward(critic), to_inputs=True)
        if name == "cql":
            products.forward(policy)
            products.forward(policy)
        # CQL's critics evaluate 30 actions for each row
        for critic in critics:
            products.learn(critic, repeats=31 if name == "cql" else 1)

    def run() -> None:
        for _ in range(steps // 2):
            products.run()

    return run


def theirs(name: str, data: dict[str, Any], steps: int) -> Callable[[], Any]:
    """Return a run of d3rlpy with rlox's default options."""
    configs: dict[str, Any] = {
        "bc": d3rlpy.algos.BCConfig(batch_size=BATCH),
        "td3_bc": d3rlpy.algos.TD3PlusBCConfig(batch_size=BATCH),
        "iql": d3rlpy.algos.IQLConfig(batch_size=BATCH),
        # without a rate d3rlpy keeps the penalty's weight constant, as rlox does
        "cql": d3rlpy.algos.CQLConfig(batch_size=BATCH, alpha_learning_rate=0.0),
    }
    dataset = d3rlpy.dataset.MDPDataset(
        data["obs"], data["actions"], data["rewards"], data["terminated"], data["truncated"]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        algorithm = configs[name].create(device="cpu:0")
        algorithm.build_with_dataset(dataset)

    def run() -> None:
        for _ in range(steps):
            algorithm.update(dataset.sample_transition_batch(BATCH))

    return run


if __name__ == "__main__":
    main()
