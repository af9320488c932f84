"""Algorithms reach published scores: five seeds, 100 deterministic evaluation episodes each."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import rlox

ROOT = Path(__file__).parents[2]

TASKS: list[Any] = [
    pytest.param("ppo", "CartPole-v1", 100_000, 475.0, None, id="ppo-CartPole-v1"),
    pytest.param("ppo", "Acrobot-v1", 300_000, -100.0, None, id="ppo-Acrobot-v1"),
    pytest.param(
        "ppo", "Pendulum-v1", 300_000, -250.0, "examples/ppo-pendulum.yaml", id="ppo-Pendulum-v1"
    ),
    pytest.param("hybrid_ppo", "CartPole-v1", 100_000, 475.0, None, id="hybrid_ppo-CartPole-v1"),
    pytest.param(
        "ppo",
        "LunarLander-v3",
        1_000_000,
        200.0,
        "examples/ppo-lunar-lander.yaml",
        id="ppo-LunarLander-v3",
    ),
    pytest.param("a2c", "CartPole-v1", 500_000, 450.0, None, id="a2c-CartPole-v1"),
    pytest.param("dqn", "CartPole-v1", 50_000, 475.0, None, id="dqn-CartPole-v1"),
    pytest.param(
        "sac", "Pendulum-v1", 20_000, -200.0, "examples/sac-pendulum.yaml", id="sac-Pendulum-v1"
    ),
    pytest.param(
        "td3", "Pendulum-v1", 20_000, -200.0, "examples/td3-pendulum.yaml", id="td3-Pendulum-v1"
    ),
]


@pytest.mark.learn
@pytest.mark.parametrize(("name", "env_id", "env_steps", "threshold", "config"), TASKS)
def test_every_seed_reaches_the_threshold(
    name: str, env_id: str, env_steps: int, threshold: float, config: str | None
) -> None:
    """The worst of five seeds passes; scores and seconds go to ``scores/``."""
    runs = []
    for seed in range(5):
        started = time.perf_counter()
        algorithm = rlox.make(name, env=env_id, seed=seed, config=config and ROOT / config)
        algorithm.train(env_steps)
        seconds = time.perf_counter() - started
        result = algorithm.evaluate(n_episodes=100)
        runs.append(
            {
                "seed": seed,
                "mean_return": result.mean_return,
                "std_return": result.std_return,
                "train_seconds": round(seconds, 1),
            }
        )
        print(name, env_id, runs[-1])
    scores = {
        "algorithm": name,
        "env": env_id,
        "env_steps": env_steps,
        "config": algorithm.config.to_dict() | {"seed": None},
        "threshold": threshold,
        "episodes": 100,
        "runs": runs,
    }
    path = ROOT / "scores" / f"{name}-{env_id}.json"
    path.write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    assert min(run["mean_return"] for run in runs) >= threshold
