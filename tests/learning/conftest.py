"""Several seeds of one algorithm: trained, evaluated, and their scores kept."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlox.algorithm import Algorithm

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside the tests
EPISODES = 100
"""Deterministic evaluation episodes of each seed."""


@pytest.fixture(name="score_seeds", scope="session")
def fixture_score_seeds() -> Callable[..., list[float]]:
    """Return :func:`score_seeds`."""
    return score_seeds


def score_seeds(
    make: Callable[[int], Algorithm], label: str, env_steps: int, threshold: float, n_seeds: int = 5
) -> list[float]:
    """Return the mean return of each seed; all that there is to know goes to ``scores/``.

    Args:
        make: from a seed to the algorithm.
        label: name of the file.
        env_steps: of the training.
        threshold: what the scores are held against.
        n_seeds: number of seeds.
    """
    runs: list[dict[str, Any]] = []
    for seed in range(n_seeds):
        started = time.perf_counter()
        algorithm = make(seed)
        algorithm.train(env_steps)
        seconds = time.perf_counter() - started
        result = algorithm.evaluate(n_episodes=EPISODES)
        runs.append(
            {
                "seed": seed,
                "mean_return": result.mean_return,
                "std_return": result.std_return,
                "train_seconds": round(seconds, 1),
            }
        )
        print(label, runs[-1], flush=True)
        algorithm.close()
    name, _, env = label.partition("-")
    scores = {
        "algorithm": name,
        "env": env,
        "env_steps": env_steps,
        "config": algorithm.config.to_dict() | {"seed": None},
        "threshold": threshold,
        "episodes": EPISODES,
        "runs": runs,
    }
    path = ROOT / "scores" / f"{label}.json"
    path.write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    return [run["mean_return"] for run in runs]
