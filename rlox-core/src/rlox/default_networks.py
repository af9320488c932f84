"""The networks of :mod:`rlox.networks` that fit an env's spaces."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces

from rlox.errors import SpaceError
from rlox.networks import DiscreteQNetwork, DuelingQNetwork

__all__ = ["make_q_network"]


def make_q_network(
    observation_space: spaces.Space[Any],
    n_actions: int,
    *,
    dueling: bool,
    hidden: int,
    generator: torch.Generator | None = None,
) -> DiscreteQNetwork | DuelingQNetwork:
    """Return action values of all discrete actions.

    Args:
        observation_space: of one env.
        n_actions: number of actions.
        dueling: separate streams for value and advantages.
        hidden: width of the two hidden layers.
        generator: source of the weights; none: torch's global one.

    Raises:
        SpaceError: the observations are no vectors.
    """
    network = DuelingQNetwork if dueling else DiscreteQNetwork
    return network(_vector_size(observation_space), n_actions, hidden, generator=generator)


def _vector_size(space: spaces.Space[Any]) -> int:
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise SpaceError(
            f"the default networks take observations of a one-dimensional Box, got {space}; wrap "
            "the env or pass networks of your own"
        )
    return int(space.shape[0])
