"""Default actor-critics for vector observations: separate tanh MLPs for policy and value.

Both satisfy :class:`rlox.protocols.OnPolicyActor`. Weights are orthogonal, scaled by √2 in hidden
layers, 0.01 in the policy's head and 1 in the value's (Huang et al. 2022, details 2 and 13).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlox.errors import SpaceError
from rlox.nn.mlp import TanhMLP

__all__ = ["ContinuousPolicy", "DiscretePolicy", "make_policy"]


class DiscretePolicy(nn.Module):
    """Categorical policy and value function.

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
        hidden: int = 64,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.generator = generator
        self.actor = TanhMLP(
            (obs_dim, hidden, hidden, n_actions), output_gain=0.01, generator=generator
        )
        self.critic = TanhMLP((obs_dim, hidden, hidden, 1), output_gain=1.0, generator=generator)

    def get_action_and_logprob(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions.

        Args:
            obs: (B, obs_dim) float32.

        Returns:
            Actions (B,) int64 and their log-probabilities (B,).
        """
        log_probs = torch.log_softmax(self.actor(obs), -1)
        # argmax(log p - log e), e exponential, is distributed as p: an exponential race
        race = _empty_like(log_probs, self.generator).exponential_(generator=self.generator)
        actions = (log_probs - race.log_().to(log_probs.device)).argmax(-1)
        return actions, log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def get_value(self, obs: Tensor) -> Tensor:
        """Return values (B,) of observations (B, obs_dim)."""
        return self.critic(obs).squeeze(-1)  # type: ignore[no-any-return]

    def get_logprob_and_entropy(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (B,) of ``actions`` (B,) int64 and entropies (B,) in nats."""
        log_probs = torch.log_softmax(self.actor(obs), -1)
        chosen = log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        return chosen, -(log_probs.exp() * log_probs).sum(-1)

    def deterministic(self, obs: Tensor) -> Tensor:
        """Return the most probable actions (B,) int64."""
        return self.actor(obs).argmax(-1)  # type: ignore[no-any-return]


class ContinuousPolicy(nn.Module):
    """Diagonal Gaussian policy with a state-independent deviation, and value function.

    Args:
        obs_dim: size of an observation.
        act_dim: size of an action.
        hidden: width of the two hidden layers.
        log_std: initial log standard deviation.
        generator: source of the weights and of the sampled actions; none: torch's global one.
    """

    def __init__(
        self,
        obs_dim: int,
        act_dim: int,
        hidden: int = 64,
        *,
        log_std: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.generator = generator
        self.actor = TanhMLP(
            (obs_dim, hidden, hidden, act_dim), output_gain=0.01, generator=generator
        )
        self.critic = TanhMLP((obs_dim, hidden, hidden, 1), output_gain=1.0, generator=generator)
        self.log_std = nn.Parameter(torch.full((act_dim,), log_std))

    def _logprob(self, standardised: Tensor) -> Tensor:
        """Return log N(a; μ, σ) for (a - μ) / σ, summed over the dimensions."""
        per_dim = -0.5 * standardised.square() - self.log_std - 0.5 * math.log(2 * math.pi)
        return per_dim.sum(-1)

    def get_action_and_logprob(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions, which are not clipped to any bounds.

        Args:
            obs: (B, obs_dim) float32.

        Returns:
            Actions (B, act_dim) float32 and their log-probabilities (B,).
        """
        mean = self.actor(obs)
        noise = _empty_like(mean, self.generator).normal_(generator=self.generator)
        noise = noise.to(mean.device)
        return mean + self.log_std.exp() * noise, self._logprob(noise)

    def get_value(self, obs: Tensor) -> Tensor:
        """Return values (B,) of observations (B, obs_dim)."""
        return self.critic(obs).squeeze(-1)  # type: ignore[no-any-return]

    def get_logprob_and_entropy(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (B,) of ``actions`` (B, act_dim) and entropies (B,) in nats."""
        standardised = (actions - self.actor(obs)) * torch.exp(-self.log_std)
        entropy = (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum()
        return self._logprob(standardised), entropy.expand(len(obs))

    def deterministic(self, obs: Tensor) -> Tensor:
        """Return the mean actions (B, act_dim)."""
        return self.actor(obs)  # type: ignore[no-any-return]


def _empty_like(values: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return an empty tensor like ``values`` where ``generator`` draws: one seed, any device."""
    device = values.device if generator is None else generator.device
    return torch.empty_like(values, device=device)


def make_policy(
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    hidden: int,
    generator: torch.Generator | None = None,
) -> DiscretePolicy | ContinuousPolicy:
    """Return the default policy for an env's spaces.

    Raises:
        SpaceError: there is none; pass one as ``policy=``.
    """
    if not isinstance(observation_space, spaces.Box) or len(observation_space.shape) != 1:
        raise SpaceError(
            f"the default policies take observations of a one-dimensional Box, got "
            f"{observation_space}; wrap the env or pass policy="
        )
    obs_dim = observation_space.shape[0]
    if isinstance(action_space, spaces.Discrete):
        if action_space.start != 0:
            raise SpaceError(f"discrete actions must start at 0, got {action_space}")
        return DiscretePolicy(obs_dim, int(action_space.n), hidden, generator=generator)
    if isinstance(action_space, spaces.Box) and len(action_space.shape) == 1:
        return ContinuousPolicy(obs_dim, action_space.shape[0], hidden, generator=generator)
    raise SpaceError(
        "the default policies act in a Discrete space or a one-dimensional Box, got "
        f"{action_space}; pass policy="
    )
