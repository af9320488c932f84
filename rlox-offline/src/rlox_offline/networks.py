"""Networks used only by the offline algorithms; :mod:`rlox.networks` has the others."""

from __future__ import annotations

from typing import cast

import torch
from gymnasium import spaces
from rlox.nn import Categorical, Hidden, make_mlp
from rlox.nn.layer_data import LayerData, chain, layer_data, mode
from torch import Tensor, nn


class CategoricalPolicy(nn.Module):
    """Log-linear probabilities of discrete actions.

    Args:
        obs_dim: size of an observation.
        n_actions: number of actions.
        hidden: width of both hidden layers, or widths of any number of them.
        generator: source of weights and sampled actions; ``None`` takes torch's global one.
    """

    def __init__(
        self,
        obs_dim: int,
        n_actions: int,
        hidden: Hidden = 256,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.generator = generator
        self._actions = spaces.Discrete(n_actions)
        self.net = make_mlp(obs_dim, hidden, n_actions, generator=generator)

    def deterministic(self, obs: Tensor) -> Tensor:
        """Return the most probable actions (B,) int64."""
        return cast("Tensor", self.net(obs)).argmax(-1)

    def layer_data(self) -> LayerData:
        """Describe the most probable actions; see :mod:`rlox.nn.layer_data`."""
        return chain(layer_data(self.net), mode(self._actions))

    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return log-probabilities (B,) of actions (B,) int64."""
        return Categorical(self.net(obs)).log_prob(actions)

    def get_action_and_logprob(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions (B,) int64 and return them with their log-probabilities (B,)."""
        return Categorical(self.net(obs)).sample(self.generator)


class LogScale(nn.Module):
    """One positive number, learnt through its logarithm; initially 1."""

    def __init__(self) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.zeros(()))

    def forward(self) -> Tensor:
        """Return the number."""
        return self.log_value.exp()
