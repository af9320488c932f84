"""Soft Q-learning keeps rlox's contract, and learns."""

from typing import Any

import numpy as np
import pytest
import rlox
import rlox.testing

SMALL: dict[str, Any] = {"learning_starts": 32, "batch_size": 16, "hidden": 16}


@pytest.mark.parametrize("buffer", ["uniform", "prioritized"])
def test_it_conforms(buffer: str) -> None:
    """Training, predictions, checkpoints and exact resume."""
    options = {**SMALL, "steps_per_iteration": 64, "buffer": buffer, "save_replay_buffer": True}
    assert rlox.testing.check_algorithm("soft_q", env="CartPole-v1", **options) == {}


def test_it_learns_to_balance() -> None:
    """The mean return of CartPole-v1 rises from about 22 for a random policy to over 100."""
    algorithm = rlox.make("soft_q", env="CartPole-v1", seed=0, learning_starts=200, hidden=64)
    algorithm.train(6_000)
    assert algorithm.evaluate(n_episodes=8).mean_return > 100
    assert algorithm.predict(np.zeros(4)) in (0, 1)
