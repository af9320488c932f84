"""Gradient steps per second of the offline algorithms: rlox and d3rlpy.

Equal networks (two layers of 256), batch size, data and one torch thread each, both in one process
and in turn, so that a busy machine slows both alike. A gradient step includes drawing its
minibatch; d3rlpy runs without its loop and its logging. A third contender does nothing but the
matrix products of rlox's steps, in torch: the floor.

    python benchmarks/offline.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import rlox
import torch
from measure import interleave, machine, ratio_summary, summary, write
from rlox_offline.datasets import Dataset

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import d3rlpy

OBS_DIM, ACT_DIM = 17, 6
"""Of HalfCheetah."""

N, EPISODE, BATCH = 20_000, 1_000, 256

STEPS = {"bc": 200, "td3_bc": 100, "iql": 100, "cql": 10}
"""Gradient steps of one run."""

WIDTH = 256
POLICY = (OBS_DIM, WIDTH, WIDTH, ACT_DIM)
GAUSSIAN = (OBS_DIM, WIDTH, WIDTH, 2 * ACT_DIM)
VALUE = (OBS_DIM, WIDTH, WIDTH, 1)
CRITIC = (OBS_DIM + ACT_DIM, WIDTH, WIDTH, 1)

Shape = tuple[int, int, int]


def main() -> None:
    """Measure and write ``benchmarks/results/offline.json``."""
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
    """Return random transitions of a large enough dataset."""
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
    algorithm = rlox.make(name, dataset=Dataset(data, normalize=False), batch_size=BATCH)
    return lambda: algorithm.train(steps)


def forward(sizes: tuple[int, ...], rows: int = BATCH) -> list[Shape]:
    """Return the products of rows on their way through a perceptron, (m, k, n) each."""
    return [(rows, n_in, n_out) for n_in, n_out in pairwise(sizes)]


def backward(
    sizes: tuple[int, ...], rows: int = BATCH, *, weights: bool = True, inputs: bool = False
) -> list[Shape]:
    """Return the products of the way back: of gradients of weights, and of layers' inputs."""
    layers = list(pairwise(sizes))
    of_weights = [(n_in, rows, n_out) for n_in, n_out in layers] if weights else []
    return of_weights + [(rows, n_out, n_in) for n_in, n_out in layers[0 if inputs else 1 :]]


def learning(sizes: tuple[int, ...], rows: int = BATCH) -> list[Shape]:
    """Return the products of a regression."""
    return forward(sizes, rows) + backward(sizes, rows)


def floor(name: str, steps: int) -> Callable[[], Any]:
    """Return a run of the matrix products of so many gradient steps, one after the other."""
    to_actions = forward(CRITIC) + backward(CRITIC, weights=False, inputs=True)
    two_steps = {
        "bc": 2 * learning(POLICY),
        # the policy steps every other time
        "td3_bc": 2 * (forward(POLICY) + 2 * forward(CRITIC) + 2 * learning(CRITIC))
        + learning(POLICY)
        + to_actions,
        "iql": 2
        * (
            2 * forward(CRITIC)
            + learning(VALUE)
            + 2 * forward(VALUE)
            + learning(POLICY)
            + 2 * learning(CRITIC)
        ),
        # 30 actions of each row are judged
        "cql": 2
        * (
            learning(GAUSSIAN)
            + 2 * to_actions
            + 3 * forward(GAUSSIAN)
            + 2 * forward(CRITIC)
            + 2 * learning(CRITIC, 31 * BATCH)
        ),
    }[name]
    operands = [(torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)) for m, k, n in two_steps]

    def run() -> None:
        for _ in range(steps // 2):
            for left, right, out in operands:
                torch.mm(left, right, out=out)

    return run


def theirs(name: str, data: dict[str, Any], steps: int) -> Callable[[], Any]:
    """Return a run of d3rlpy, its options those that rlox has by default."""
    configs: dict[str, Any] = {
        "bc": d3rlpy.algos.BCConfig(batch_size=BATCH),
        "td3_bc": d3rlpy.algos.TD3PlusBCConfig(batch_size=BATCH),
        "iql": d3rlpy.algos.IQLConfig(batch_size=BATCH),
        # without a rate for it, d3rlpy leaves the penalty's weight as it is, as rlox does
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
