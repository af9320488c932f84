"""Where the present observation is not enough, a policy needs a memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import rlox
from gymnasium.wrappers import TransformObservation

ENV_STEPS = 200_000
OPTIONS = {"normalize_observations": True, "normalize_rewards": True}
"""Angles are small beside the inputs that the weights are made for, and returns of a hundred beside
policy gradients: the clipped norm is of both."""
SEEN = [0, 2]
"""Position of the cart and angle of the pole; their velocities are hidden."""


def cartpole_without_velocities() -> gymnasium.Env[Any, Any]:
    """Return CartPole-v1 of which one sees position and angle only."""
    env = gymnasium.make("CartPole-v1")
    whole: Any = env.observation_space
    space = gymnasium.spaces.Box(whole.low[SEEN], whole.high[SEEN], dtype=np.float32)
    return TransformObservation(env, lambda obs: obs[SEEN], space)


@pytest.mark.learn
@pytest.mark.parametrize("recurrent", ["lstm", "gru"])
def test_a_recurrent_policy_balances_without_velocities(
    score_seeds: Callable[..., list[float]], recurrent: str
) -> None:
    """Every seed reaches 450."""

    def make(seed: int) -> rlox.Algorithm:
        env = cartpole_without_velocities
        return rlox.make("ppo", env=env, seed=seed, recurrent=recurrent, **OPTIONS)

    label = f"ppo-CartPole-v1-without-velocities-{recurrent}"
    assert min(score_seeds(make, label, ENV_STEPS, 450.0)) >= 450


@pytest.mark.learn
def test_a_policy_without_memory_does_not(score_seeds: Callable[..., list[float]]) -> None:
    """No seed reaches 200: what the pole does next cannot be predicted from its angle."""

    def make(seed: int) -> rlox.Algorithm:
        return rlox.make("ppo", env=cartpole_without_velocities, seed=seed, **OPTIONS)

    label = "ppo-CartPole-v1-without-velocities-no-memory"
    assert max(score_seeds(make, label, ENV_STEPS, 200.0)) < 200
