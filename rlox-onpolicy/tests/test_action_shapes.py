"""Actions of custom policies, in the shape of their space."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TransformAction
from rlox_onpolicy.ppo import PPO
from torch import Tensor, nn
from torch.distributions import Independent, Normal


class Shaped(nn.Module):
    """Acts with arrays of a given shape and ignores observations."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(shape))

    def _normal(self, obs: Tensor) -> Any:
        means = self.mean.expand(len(obs), *self.mean.shape)
        return Independent(Normal(means, 1.0), self.mean.dim())

    def get_action_and_logprob(self, obs: Tensor) -> Any:
        actions = self._normal(obs).sample()
        return actions, self._normal(obs).log_prob(actions)

    def get_value(self, obs: Tensor) -> Tensor:
        return self.mean.sum().expand(len(obs))

    def get_logprob_and_entropy(self, obs: Tensor, actions: Tensor) -> Any:
        return self._normal(obs).log_prob(actions), self._normal(obs).entropy()

    def deterministic(self, obs: Tensor) -> Any:
        return self._normal(obs).mean


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_actions_may_have_the_shape_of_their_space(shape: tuple[int, ...]) -> None:
    """Both this shape and the rows of rlox.spaces.rows are accepted."""

    def make() -> Any:
        env = gymnasium.make("Pendulum-v1")
        return TransformAction(env, lambda a: a.reshape(-1)[:1], spaces.Box(-2, 2, shape))

    with PPO(make, policy=Shaped(shape), n_envs=2, n_steps=8, batch_size=16) as ppo:
        ppo.train(32)
        assert ppo.predict(np.zeros((5, 3), np.float32)).shape == (5, *shape)
