"""Protocols of replay buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy.typing as npt

if TYPE_CHECKING:
    pass

__all__ = ["PrioritizedBuffer", "ReplayBuffer", "ReplayBufferProtocol", "StatefulBuffer"]


@runtime_checkable
class ReplayBuffer(Protocol):
    """What off-policy algorithms store transitions in and draw them from."""

    def __len__(self) -> int:
        """Return how many transitions can be drawn."""

    def push_batch(
        self,
        obs: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        next_obs: npt.ArrayLike,
    ) -> None:
        """Store a copy of one vector step: row i of every array is env i's.

        Args:
            obs: (N, *shape) observations acted on; of a nested space the rows of
                :mod:`rlox.replay.observation_codec`.
            actions: (N,) int64, or (N, act_dim) float32 in [-1, 1].
            rewards: (N,)
            terminated: (N,) bool, the task itself ended.
            truncated: (N,) bool, the episode was cut.
            next_obs: (N, *shape) what the step led to, never the next episode's first observation.
        """

    def sample(self, batch_size: int) -> Mapping[str, npt.NDArray[Any]]:
        """Draw B transitions.

        Returns:
            ``obs`` and ``next_obs`` (B, *shape), ``actions`` (B, 1) or (B, act_dim), ``rewards``
            (B,) float32, ``terminated`` (B,) bool. A buffer of several steps adds, any other may,
            ``discounts`` (B,) float32, what the value of ``next_obs`` counts (γᵏ after k steps, 0
            where the task ended). Any may add ``weights`` (B,) float32 of the transitions' losses,
            and ``indices`` (B,) for :meth:`PrioritizedBuffer.update_priorities`.
        """


@runtime_checkable
class ReplayBufferProtocol(Protocol):
    """A buffer that stores one transition at a time; off-policy algorithms take it too.

    One :class:`ReplayBuffer` is asked less often.
    """

    def __len__(self) -> int:
        """Return how many transitions can be drawn."""

    def push(
        self,
        obs: npt.NDArray[Any],
        action: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        next_obs: npt.NDArray[Any],
    ) -> None:
        """Store a transition, a row of those of :meth:`ReplayBuffer.push_batch`."""

    def sample(self, batch_size: int, seed: int) -> Mapping[str, npt.NDArray[Any]]:
        """Draw what :meth:`ReplayBuffer.sample` does, by a seed; ``seed`` may be left out."""


@runtime_checkable
class PrioritizedBuffer(Protocol):
    """A replay buffer that draws in proportion to priorities."""

    def update_priorities(self, indices: Any, priorities: npt.ArrayLike) -> None:
        """Give the transitions ``indices`` (B,) of a batch new priorities (B,)."""

    def set_beta(self, beta: float) -> None:
        """Set the exponent β in [0, 1] of the weights that correct for the priorities."""


@runtime_checkable
class StatefulBuffer(Protocol):
    """A replay buffer that can be saved in a checkpoint."""

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return a copy of all that decides how the buffer goes on."""

    def set_state(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Go on exactly from a :meth:`state`."""
