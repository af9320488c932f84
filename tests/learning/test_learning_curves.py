"""What ought to learn alike does: learning curves of ten seeds each, compared.

PPO with either learner backend, and HybridPPO, whose rollouts another thread collects with another
random stream. Single runs differ; their distributions must not, but for ``overlap``, which learns
from batches of one iteration before. A point of a curve is the return of the policy after so many
updates: with ``overlap`` it comes one iteration later.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import rlox
from curve import Curve

SCORES = Path(__file__).parents[2] / "scores" / "learning-curves"

SEEDS, ENV_STEPS, RESAMPLES = 10, 60_000, 20_000

CONTENDERS = {
    "ppo, torch learner": ("ppo", {"backend": "torch"}),
    "ppo, native learner": ("ppo", {"backend": "native"}),
    "hybrid_ppo": ("hybrid_ppo", {"n_envs": 8}),
    "hybrid_ppo, overlap": ("hybrid_ppo", {"n_envs": 8, "overlap": True}),
}

STATISTICS = {
    "mean over the training": lambda curves: curves.mean(1),
    "at its end": lambda curves: curves[:, -1],
}


@cache
def curves(contender):
    """Train on CartPole-v1 and return the learning curves (SEEDS, updates)."""
    name, options = CONTENDERS[contender]
    late = int(options.get("overlap", False))
    rows = []
    for seed in range(SEEDS):
        logger = Curve()
        algorithm = rlox.make(name, env="CartPole-v1", seed=seed, logger=logger, **options)
        with algorithm:
            algorithm.train(ENV_STEPS + late * algorithm.config.n_envs * algorithm.config.n_steps)
        rows.append(logger.points[late:])
    return np.array(rows)


def compare(a, b):
    """Return the difference of two samples' means, a bootstrap interval and a p-value of it.

    The p-value is that of the two-sided permutation test of equal distributions.
    """
    rng = np.random.default_rng(0)
    pooled, found = np.concatenate([a, b]), b.mean() - a.mean()
    shuffled = rng.permuted(np.tile(pooled, (RESAMPLES, 1)), axis=1)
    differences = shuffled[:, len(a) :].mean(1) - shuffled[:, : len(a)].mean(1)
    drawn = [x[rng.integers(len(x), size=(RESAMPLES, len(x)))].mean(1) for x in (a, b)]
    low, high = np.quantile(drawn[1] - drawn[0], [0.025, 0.975])
    return {
        "difference": round(float(found), 1),
        "interval": [round(float(low), 1), round(float(high), 1)],
        "p_value": float((abs(differences) >= abs(found) - 1e-12).mean()),
    }


def compare_with_torch(contender):
    """Return how a contender's curves differ from the torch learner's, and keep both."""
    pair = {name: curves(name) for name in ("ppo, torch learner", contender)}
    found = {name: compare(*map(of, pair.values())) for name, of in STATISTICS.items()}
    print(contender, found)
    SCORES.mkdir(exist_ok=True)
    path = SCORES / f"{contender.replace(', ', '-').replace(' ', '-')}-CartPole-v1.json"
    result = {
        "env": "CartPole-v1",
        "env_steps": ENV_STEPS,
        "minus torch learner": found,
        "mean_return_of_last_100_episodes": {name: rows.tolist() for name, rows in pair.items()},
    }
    path.write_text(json.dumps(result) + "\n", encoding="utf-8")
    assert min(rows[:, -1].mean() for rows in pair.values()) > 200
    return found


@pytest.mark.learn
@pytest.mark.parametrize("contender", ["ppo, native learner", "hybrid_ppo"])
def test_learning_curves_are_those_of_torchs_ppo(contender):
    """Neither the mean over the training nor its end differs, at p = 0.05; all of them learn."""
    found = compare_with_torch(contender)
    assert min(each["p_value"] for each in found.values()) > 0.05


@pytest.mark.learn
def test_overlapped_rollouts_teach_no_less():
    """Batches of the weights before make another curve, but not one that is worse at p = 0.05."""
    found = compare_with_torch("hybrid_ppo, overlap")
    assert min(each["interval"][1] for each in found.values()) > 0


@pytest.mark.learn
@pytest.mark.parametrize(
    ("env_id", "config", "env_steps", "threshold"),
    [
        ("CartPole-v1", None, 500_000, 475.0),
        ("Pendulum-v1", "examples/appo-pendulum.yaml", 1_000_000, -300.0),
    ],
)
def test_appo_learns_on_every_seed(env_id, config, env_steps, threshold):
    """The mean of the last 100 episodes passes the threshold; fifty points of each curve are kept.

    The first env steps at which it does are kept too.
    """
    found = {"env": env_id, "env_steps": env_steps, "threshold": threshold}
    found["seeds"] = []
    for seed in range(5):
        logger = Curve()
        given = SCORES.parents[1] / config if config else None
        with rlox.make("appo", env=env_id, config=given, seed=seed, logger=logger) as appo:
            appo.train(env_steps)
        points = zip(logger.env_steps, logger.points, strict=True)
        passed = next((step for step, point in points if point >= threshold), None)
        found["seeds"].append({"passed_at": passed, **logger.thinned()})
    path = SCORES / f"appo-{env_id}.json"
    path.write_text(json.dumps(found) + "\n", encoding="utf-8")
    assert all(each["passed_at"] for each in found["seeds"])
