"""PPO reaches published scores: five seeds each, deterministic evaluation over 100 episodes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import rlox

ROOT = Path(__file__).parents[2]

TASKS: list[Any] = [
    pytest.param("CartPole-v1", 100_000, 475.0, None, id="CartPole-v1"),
    pytest.param("Acrobot-v1", 300_000, -100.0, None, id="Acrobot-v1"),
    pytest.param("Pendulum-v1", 300_000, -250.0, "examples/ppo-pendulum.yaml", id="Pendulum-v1"),
]


@pytest.mark.learn
@pytest.mark.parametrize(("env_id", "env_steps", "threshold", "config"), TASKS)
def test_ppo_reaches_the_threshold_with_every_seed(
    env_id: str, env_steps: int, threshold: float, config: str | None
) -> None:
    """The worst of five seeds passes; scores and seconds go to ``scores/``."""
    runs = []
    for seed in range(5):
        started = time.perf_counter()
        ppo = rlox.make("ppo", env=env_id, seed=seed, config=config and ROOT / config)
        ppo.train(env_steps)
        seconds = time.perf_counter() - started
        result = ppo.evaluate(n_episodes=100)
        runs.append(
            {
                "seed": seed,
                "mean_return": result.mean_return,
                "std_return": result.std_return,
                "train_seconds": round(seconds, 1),
            }
        )
        print(env_id, runs[-1])
    scores = {
        "algorithm": "ppo",
        "env": env_id,
        "env_steps": env_steps,
        "config": ppo.config.to_dict() | {"seed": None},
        "threshold": threshold,
        "episodes": 100,
        "runs": runs,
    }
    path = ROOT / "scores" / f"ppo-{env_id}.json"
    path.write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    assert min(run["mean_return"] for run in runs) >= threshold
