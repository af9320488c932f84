"""The networks of :mod:`rlox.networks` that fit an env's spaces."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from torch import nn

from rlox.errors import SpaceError
from rlox.networks import (
    DeterministicPolicy,
    DiscreteQNetwork,
    DuelingQNetwork,
    SquashedGaussianPolicy,
    TwinQNetwork,
)
from rlox.nn.encoders import make_encoder

__all__ = [
    "make_critics",
    "make_deterministic_policy",
    "make_q_network",
    "make_squashed_gaussian",
]


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
        noisy_std: σ₀ of noisy layers, likewise; convolutions have no noise.
        generator: source of the weights; none: torch's global one.

    Raises:
        SpaceError: the observations are no Box.
    """
    if not isinstance(observation_space, spaces.Box):
        raise SpaceError(
            f"the default networks take observations of a Box, got {observation_space}; wrap the "
            "env or pass a network of your own"
        )
    make = partial(
        DuelingQNetwork if dueling else DiscreteQNetwork,
        n_actions=n_actions,
        hidden=hidden,
        n_atoms=n_atoms,
        noisy_std=noisy_std,
        generator=generator,
    )
    if len(observation_space.shape) == 1:
        return make(observation_space.shape[0])
    encoder = make_encoder(observation_space, generator=generator)
    return nn.Sequential(encoder, make(int(encoder.output_size)))  # type: ignore[arg-type]


def make_critics(
    observation_space: spaces.Space[Any],
    act_dim: int,
    *,
    n_critics: int,
    hidden: int,
    generator: torch.Generator | None = None,
) -> TwinQNetwork:
    """Return values of continuous actions, of several critics.

    Args:
        observation_space: of one env.
        act_dim: size of an action.
        n_critics: number of critics K.
        hidden: width of the two hidden layers.
        generator: source of the weights; none: torch's global one.

    Raises:
        SpaceError: the observations are no vectors.
    """
    size = _vector_size(observation_space)
    return TwinQNetwork(size, act_dim, hidden, n_critics=n_critics, generator=generator)


def make_squashed_gaussian(
    observation_space: spaces.Space[Any],
    act_dim: int,
    *,
    hidden: int,
    generator: torch.Generator | None = None,
) -> SquashedGaussianPolicy:
    """Return a stochastic policy for continuous actions; arguments as of :func:`make_critics`.

    Raises:
        SpaceError: the observations are no vectors.
    """
    size = _vector_size(observation_space)
    return SquashedGaussianPolicy(size, act_dim, hidden, generator=generator)


def make_deterministic_policy(
    observation_space: spaces.Space[Any],
    act_dim: int,
    *,
    hidden: int,
    generator: torch.Generator | None = None,
) -> DeterministicPolicy:
    """Return a deterministic policy for continuous actions; arguments as of :func:`make_critics`.

    Raises:
        SpaceError: the observations are no vectors.
    """
    size = _vector_size(observation_space)
    return DeterministicPolicy(size, act_dim, hidden, generator=generator)


def _vector_size(space: spaces.Space[Any]) -> int:
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise SpaceError(
            f"the default networks take observations of a one-dimensional Box, got {space}; wrap "
            "the env or pass networks of your own"
        )
    return int(space.shape[0])
