"""One learning curve of IMPALA, whoever collects: 1 to 8 actors in threads, and env workers.

All have eight envs, updates of 128 env steps and unrolls that are collected while the update before
is learned, in the order in which they come: what a run learns from depends on timing, and how it
learns must not.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import rlox
from curve import Curve
from rlox.envs.make import make_vec_env
from rlox_distributed.worker import EnvWorker

ROOT = Path(__file__).parents[2]
ENV_ID, N_ENVS, N_STEPS, SEEDS, ENV_STEPS, RESAMPLES = "CartPole-v1", 8, 16, 5, 50_000, 20_000
ACTORS = (1, 2, 4, 8)
LEAST_P = 0.01
"""Below which curves are called different: the two tests together err once in 50 runs at most."""


@pytest.fixture(name="serve")
def fixture_serve():
    """Return a function that serves so many envs until the end of the test, and returns where."""
    workers = []

    def serve(n_envs):
        workers.append(EnvWorker(make_vec_env(ENV_ID, n_envs=n_envs), ENV_ID, "127.0.0.1:0"))
        workers[-1].start()
        return f"127.0.0.1:{workers[-1].port}"

    yield serve
    for worker in workers:
        worker.stop(grace=0.1)


def curve(seed, n_actors, **options):
    """Train and return the learning curve, thinned to a point of each ten updates."""
    logger = Curve()
    with rlox.make(
        "impala", ENV_ID, config=ROOT / "examples/impala-cartpole.yaml", seed=seed, logger=logger,
        n_actors=n_actors, n_envs=N_ENVS // n_actors, n_steps=N_STEPS, unrolls_per_update=n_actors,
        queue_size=n_actors, order="arrival", **options,
    ) as impala:  # fmt: skip
        impala.train(ENV_STEPS)
    return logger.points[9::10]


def p_value(groups):
    """Return the p-value of the permutation test of equal means.

    Args:
        groups: a number of each run of each group.
    """
    sizes, pooled = [len(group) for group in groups], np.concatenate(groups)
    rows = np.random.default_rng(0).permuted(np.tile(pooled, (RESAMPLES, 1)), axis=1)

    def spread(values):
        parts = np.split(values, np.cumsum(sizes)[:-1], axis=1)
        means = np.stack([part.mean(1) for part in parts])
        return np.einsum("g,gr->r", sizes, (means - values.mean(1)) ** 2)

    found = spread(pooled[None])[0]
    return float((spread(rows) >= found - 1e-9).mean())


@pytest.mark.learn
def test_the_number_and_place_of_actors_does_not_change_the_curve(serve):
    """Neither the mean over the training nor its end differs at p = 0.01, and all of them learn."""
    rows = {}
    for n in ACTORS:
        rows[f"threads, {n}"] = [curve(seed, n) for seed in range(SEEDS)]
        print(n, np.mean(rows[f"threads, {n}"]), flush=True)
    addresses = [serve(N_ENVS // 2) for _ in range(2)]
    rows["workers, 2"] = [
        curve(SEEDS + seed, 2, worker_addresses=addresses) for seed in range(SEEDS)
    ]
    curves = {name: np.array(found) for name, found in rows.items()}
    found = {
        "mean over the training": p_value([each.mean(1) for each in curves.values()]),
        "at its end": p_value([each[:, -1] for each in curves.values()]),
    }
    means = {name: [float(x) for x in np.round(c.mean(1), 1)] for name, c in curves.items()}
    print(found, means, flush=True)
    result = {
        "env": ENV_ID,
        "env_steps": ENV_STEPS,
        "p_values": found,
        "mean_over_the_training": means,
        "mean_return_of_last_100_episodes": rows,
    }
    path = ROOT / "scores" / "learning-curves" / f"impala-actors-{ENV_ID}.json"
    path.write_text(json.dumps(result) + "\n", encoding="utf-8")
    assert min(each[:, -1].mean() for each in curves.values()) > 100
    assert min(found.values()) > LEAST_P
