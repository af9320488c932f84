"""Several seeds of one algorithm: trained, evaluated, and their scores kept."""

import json
import re
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside the tests

from curve import Curve  # noqa: E402  once they are found

NUMBERS = re.compile(r"\[[-\d.,\s]+\]")  # lists of them, which take one line
EPISODES = 100
"""Deterministic evaluation episodes of each seed."""


@pytest.fixture(name="score_seeds", scope="session")
def fixture_score_seeds():
    """Return :func:`score_seeds`."""
    return score_seeds


def evaluate(algorithm):
    """Return mean and standard deviation of the returns of :data:`EPISODES` episodes."""
    result = algorithm.evaluate(n_episodes=EPISODES)
    return {"mean_return": result.mean_return, "std_return": result.std_return}


def score_seeds(
    make, label, env_steps, threshold, n_seeds=5, *, measure=evaluate, episodes=EPISODES
):
    """Return the mean return of each seed; all that there is to know goes to ``scores/``.

    Args:
        make: makes the algorithm of a ``seed``.
        label: name of the file.
        env_steps: of the training.
        threshold: what the scores are held against.
        n_seeds: number of seeds.
        measure: scores a trained algorithm; ``mean_return`` is what counts.
        episodes: how many of them ``measure`` plays.
    """
    runs = []
    for seed in range(n_seeds):
        started, of_processor = time.perf_counter(), time.process_time()
        algorithm = make(seed=seed)
        algorithm.logger = curve = Curve()
        algorithm.train(env_steps)
        seconds = {
            "train_seconds": round(time.perf_counter() - started, 1),
            "processor_seconds": round(time.process_time() - of_processor, 1),
        }
        runs.append({"seed": seed, **measure(algorithm), **seconds})
        print(label, runs[-1], flush=True)
        if curve.points:
            runs[-1]["curve"] = curve.thinned()
        algorithm.close()
    name, _, env = label.partition("-")
    scores = {
        "algorithm": name,
        "env": env,
        "env_steps": env_steps,
        "config": algorithm.config.to_dict() | {"seed": None},
        "threshold": threshold,
        "episodes": episodes,
        "runs": runs,
    }
    path = ROOT / "scores" / f"{label}.json"
    text = NUMBERS.sub(lambda found: " ".join(found[0].split()), json.dumps(scores, indent=2))
    path.write_text(text + "\n", encoding="utf-8")
    return [run["mean_return"] for run in runs]
