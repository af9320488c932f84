"""Networks that only the offline algorithms use; :mod:`rlox.networks` has the others."""

from __future__ import annotations

import math
from typing import cast

import torch
from rlox.nn import ReluMLP
from torch import Tensor, nn

__all__ = [
    "CategoricalPolicy",
    "GaussianPolicy",
    "LogScale",
    "ValueNetwork",
    "standard_normal",
    "uniform",
]


class ValueNetwork(nn.Module):
    """State value V(s).

    Args:
        obs_dim: size of an observation.
        hidden: width of the two hidden layers.
        generator: source of the weights; none: torch's global one.
    """

    def __init__(
        self, obs_dim: int, hidden: int = 256, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.net = ReluMLP((obs_dim, hidden, hidden, 1), generator=generator)

    def forward(self, obs: Tensor) -> Tensor:
        """Return values (B,) of observations (B, obs_dim)."""
        return cast("Tensor", self.net(obs)).squeeze(-1)


class GaussianPolicy(nn.Module):
    """a ~ N(tanh(f(s)), σ²), independent dimensions, σ the same in every state.

    Samples may lie outside [-1, 1]; the mean does not.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: width of the two hidden layers.
        log_std_bounds: log σ is clipped to these.
        generator: source of the weights and of the sampled actions; none: torch's global one.

    Source:
        Kostrikov et al. 2022, "Offline reinforcement learning with implicit Q-learning", the
        authors' ``NormalTanhPolicy(state_dependent_std=False, tanh_squash_distribution=False)``.
    """

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        hidden: int = 256,
        *,
        log_std_bounds: tuple[float, float] = (-5.0, 2.0),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.generator = generator
        self.log_std_bounds = log_std_bounds
        self.net = ReluMLP((obs_dim, hidden, hidden, act_dim), generator=generator)
        self.log_std = nn.Parameter(torch.zeros(act_dim))

    def deterministic(self, obs: Tensor) -> Tensor:
        """Return the means (B, act_dim) for observations (B, obs_dim)."""
        return cast("Tensor", self.net(obs)).tanh()

    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return log-densities (B,) of actions (B, act_dim)."""
        log_std = self.log_std.clamp(*self.log_std_bounds)
        standardised = (actions - self.deterministic(obs)) * torch.exp(-log_std)
        per_dim = -0.5 * standardised.square() - log_std - 0.5 * math.log(2 * math.pi)
        return per_dim.sum(-1)

    def get_action_and_logprob(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions (B, act_dim) and return them with their log-densities (B,)."""
        mean = self.deterministic(obs)
        noise = standard_normal(mean, self.generator)
        actions = mean + self.log_std.clamp(*self.log_std_bounds).exp() * noise
        return actions, self.log_prob(obs, actions)


class CategoricalPolicy(nn.Module):
    """Log-linear probabilities of discrete actions.

    Args:
        obs_dim: size of an observation.
        n_actions: number of actions.
        hidden: width of the two hidden layers.
        generator: source of the weights and of the sampled actions; none: torch's global one.
    """

    def __init__(
        self,
        obs_dim: int,
        n_actions: int,
        hidden: int = 256,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.generator = generator
        self.net = ReluMLP((obs_dim, hidden, hidden, n_actions), generator=generator)

    def deterministic(self, obs: Tensor) -> Tensor:
        """Return the most probable actions (B,) int64."""
        return cast("Tensor", self.net(obs)).argmax(-1)

    def log_prob(self, obs: Tensor, actions: Tensor) -> Tensor:
        """Return log-probabilities (B,) of actions (B,) int64."""
        log_probs = torch.log_softmax(self.net(obs), -1)
        return log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def get_action_and_logprob(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions (B,) int64 and return them with their log-probabilities (B,)."""
        log_probs = torch.log_softmax(self.net(obs), -1)
        device = log_probs.device if self.generator is None else self.generator.device
        probabilities = log_probs.exp().to(device)
        actions = torch.multinomial(probabilities, 1, generator=self.generator).to(log_probs.device)
        return actions.squeeze(-1), log_probs.gather(-1, actions).squeeze(-1)


def standard_normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return standard normal numbers, drawn where ``generator`` draws: one seed, any device."""
    device = like.device if generator is None else generator.device
    return torch.randn(like.shape, generator=generator, device=device).to(like.device)


def uniform(shape: tuple[int, ...], generator: torch.Generator, like: Tensor) -> Tensor:
    """Return numbers uniform in [-1, 1] on the device and in the type of ``like``."""
    drawn = torch.rand(shape, generator=generator, dtype=like.dtype, device=generator.device)
    return drawn.mul_(2).sub_(1).to(like.device)


class LogScale(nn.Module):
    """One positive number, learnt by its logarithm; 1 at first."""

    def __init__(self) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.zeros(()))

    def forward(self) -> Tensor:
        """Return the number."""
        return self.log_value.exp()
