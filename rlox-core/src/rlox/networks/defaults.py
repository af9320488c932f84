"""Default networks for the spaces of an env."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlox.networks.policies import (
    DeterministicPolicy,
    DiscreteQNetwork,
    DuelingQNetwork,
    SquashedGaussianPolicy,
    TwinQNetwork,
)
from rlox.nn.encoders import make_encoder
from rlox.nn.layer_data import LayerData, chain, layer_data
from rlox.nn.mlp import EnsembleMLP, ReluMLP


def make_q_network(
    observation_space: spaces.Space[Any],
    n_actions: int,
    *,
    dueling: bool,
    hidden: int,
    n_atoms: int | None = None,
    noisy_std: float | None = None,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return action values of all discrete actions; images are encoded by convolutions first.

    Args:
        observation_space: of one env.
        n_actions: number of actions.
        dueling: separate streams for value and advantages.
        hidden: width of the two hidden layers.
        n_atoms: numbers for each action, see :class:`rlox.networks.DiscreteQNetwork`.
        noisy_std: σ₀ of noisy layers, see :class:`rlox.nn.NoisyLinear`; convolutions have no noise.
        generator: source of the weights; ``None`` uses torch's global one.

    Raises:
        SpaceError: the observations have no encoder.
    """
    make = partial(
        DuelingQNetwork if dueling else DiscreteQNetwork,
        n_actions=n_actions,
        hidden=hidden,
        n_atoms=n_atoms,
        noisy_std=noisy_std,
        generator=generator,
    )
    encoder, size = find_encoder(observation_space, generator)
    return make(size) if encoder is None else nn.Sequential(encoder, make(size))


def make_critics(
    observation_space: spaces.Space[Any],
    act_dim: int,
    *,
    n_critics: int,
    hidden: int,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return values of continuous actions, of several critics with one encoder.

    Args:
        observation_space: of one env.
        act_dim: size of an action.
        n_critics: number of critics K.
        hidden: width of the two hidden layers.
        generator: source of the weights; ``None`` uses torch's global one.

    Raises:
        SpaceError: the observations have no encoder.
    """
    encoder, size = find_encoder(observation_space, generator)
    critics = TwinQNetwork(size, act_dim, hidden, n_critics=n_critics, generator=generator)
    return critics if encoder is None else EncodedCritics(encoder, critics)


def make_logits(
    observation_space: spaces.Space[Any],
    n_actions: int,
    *,
    hidden: int,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return logits (B, A) of a policy for discrete actions.

    Args:
        observation_space: of one env.
        n_actions: number of actions A.
        hidden: width of the two hidden layers.
        generator: source of the weights; ``None`` uses torch's global one.

    Raises:
        SpaceError: the observations have no encoder.
    """
    encoder, size = find_encoder(observation_space, generator)
    logits = ReluMLP((size, hidden, hidden, n_actions), generator=generator)
    return logits if encoder is None else nn.Sequential(encoder, logits)


def make_discrete_critics(
    observation_space: spaces.Space[Any],
    n_actions: int,
    *,
    n_critics: int,
    hidden: int,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return values (K, B, A) of all discrete actions, of K critics with one encoder.

    Args:
        observation_space: of one env.
        n_actions: number of actions A.
        n_critics: number of critics K.
        hidden: width of the two hidden layers.
        generator: source of the weights; ``None`` uses torch's global one.

    Raises:
        SpaceError: the observations have no encoder.
    """
    encoder, size = find_encoder(observation_space, generator)
    critics = EnsembleMLP(n_critics, (size, hidden, hidden, n_actions), generator=generator)
    return critics if encoder is None else nn.Sequential(encoder, critics)


def make_squashed_gaussian(
    observation_space: spaces.Space[Any],
    act_dim: int,
    *,
    hidden: int,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return a stochastic policy for continuous actions; arguments as of :func:`make_critics`.

    Raises:
        SpaceError: the observations have no encoder.
    """
    encoder, size = find_encoder(observation_space, generator)
    policy = SquashedGaussianPolicy(size, act_dim, hidden, generator=generator)
    return policy if encoder is None else EncodedPolicy(encoder, policy)


def make_deterministic_policy(
    observation_space: spaces.Space[Any],
    act_dim: int,
    *,
    hidden: int,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return a deterministic policy for continuous actions; arguments as of :func:`make_critics`.

    Raises:
        SpaceError: the observations have no encoder.
    """
    encoder, size = find_encoder(observation_space, generator)
    policy = DeterministicPolicy(size, act_dim, hidden, generator=generator)
    return policy if encoder is None else EncodedPolicy(encoder, policy)


def find_encoder(
    space: spaces.Space[Any], generator: torch.Generator | None
) -> tuple[nn.Module | None, int]:
    """Return an encoder and how many features it makes; vectors are features already."""
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and space.dtype != np.uint8:
        return None, int(space.shape[0])
    encoder = make_encoder(space, generator=generator)
    return encoder, int(encoder.output_size)  # type: ignore[arg-type]


class EncodedCritics(nn.Module):
    """Critics of features, with the encoder that makes them of observations.

    Args:
        encoder: from observations to features (B, n).
        critics: from features and actions (B, act_dim) to values (K, B).
    """

    def __init__(self, encoder: nn.Module, critics: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.critics = critics

    def forward(self, obs: Any, actions: Tensor) -> Tensor:
        """Return values (K, B) of observations (B, *shape) and actions (B, act_dim)."""
        return self.critics(self.encoder(obs), actions)  # type: ignore[no-any-return]


class EncodedPolicy(nn.Module):
    """A policy of features, with the encoder that makes them of observations.

    Args:
        encoder: from observations to features (B, n).
        policy: one of :mod:`rlox.networks`.
    """

    def __init__(
        self, encoder: nn.Module, policy: SquashedGaussianPolicy | DeterministicPolicy
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.policy: Any = policy

    @property
    def generator(self) -> torch.Generator | None:
        """Source of the sampled actions."""
        return getattr(self.policy, "generator", None)

    @generator.setter
    def generator(self, generator: torch.Generator | None) -> None:
        self.policy.generator = generator

    def get_action_and_logprob(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Sample actions (B, act_dim) for observations (B, *shape), with log-probabilities (B,)."""
        return self.policy.get_action_and_logprob(self.encoder(obs))  # type: ignore[no-any-return]

    def deterministic(self, obs: Any) -> Tensor:
        """Return the policy's actions (B, act_dim) without noise."""
        return self.policy.deterministic(self.encoder(obs))  # type: ignore[no-any-return]

    def layer_data(self) -> LayerData:
        """Describe the actions without noise; see :mod:`rlox.nn.layer_data`."""
        return chain(layer_data(self.encoder), layer_data(self.policy))
