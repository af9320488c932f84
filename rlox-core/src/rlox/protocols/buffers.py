"""Protocols of replay buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt

from rlox.protocols.envs import ForwardedMembers


@runtime_checkable
class ReplayBuffer(Protocol, metaclass=ForwardedMembers):
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
                :mod:`rlox.replay.codecs`.
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
            if the task ended). Any may add ``weights`` (B,) float32 of the transitions' losses,
            and ``indices`` (B,) for :meth:`PrioritizedBuffer.update_priorities`.
        """


@runtime_checkable
class ReplayBufferProtocol(Protocol, metaclass=ForwardedMembers):
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
class PrioritizedBuffer(Protocol, metaclass=ForwardedMembers):
    """A replay buffer that draws in proportion to priorities."""

    def update_priorities(self, indices: Any, priorities: npt.ArrayLike) -> None:
        """Give the transitions ``indices`` (B,) of a batch new priorities (B,)."""

    def set_beta(self, beta: float) -> None:
        """Set the exponent β in [0, 1] of the weights that correct for the priorities."""


@runtime_checkable
class StatefulBuffer(Protocol, metaclass=ForwardedMembers):
    """A replay buffer that can be saved in a checkpoint.

    One that grows large is a :class:`SegmentedBuffer` too.
    """

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return a copy of all that decides how the buffer goes on."""

    def set_state(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Go on exactly from a :meth:`state`."""


@runtime_checkable
class SegmentedBuffer(Protocol, metaclass=ForwardedMembers):
    """A buffer of which a checkpoint writes only the rows that changed.

    Its rows are in numbered slots: a ring's by position; a buffer of several streams numbers them
    as it likes, and slots that hold nothing may have any contents. Its :meth:`state` is
    ``{**rest(), **rows(0, n)}`` with all n slots.
    """

    def changed_rows(self, since: int) -> tuple[int, int, Sequence[tuple[int, int]]]:
        """Return which rows may have changed since an older call.

        Args:
            since: the mark that the older call returned; 0 stands for the beginning, from which on
                all rows have changed.

        Returns:
            A mark of this moment, which is positive if there are rows; the number of slots; and
            ranges of slots, (start, stop) each, that have every row that was written, overwritten
            or updated since. After :meth:`set_state` all have changed.
        """

    def rows(self, start: int, stop: int) -> dict[str, npt.NDArray[Any]]:
        """Return a copy of the rows in the slots from ``start`` to ``stop``, as (n, ...) arrays.

        Raises:
            ValueError: there are no such slots.
        """

    def rest(self) -> dict[str, Any]:
        """Return a copy of the part of the state that is not in rows, which every save writes."""

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return a copy of everything that decides how the buffer goes on."""

    def set_state(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Go on exactly from a :meth:`state`."""


@runtime_checkable
class SequenceBuffer(Protocol, metaclass=ForwardedMembers):
    """Stores one stream of rows per env, and samples sequences of consecutive rows.

    World models and recurrent value functions learn from sequences. A row is an observation with
    what led to it: the action before, the reward that it paid, and where in its episode it is. The
    last observation of an episode has a row of its own, so that streams of envs in step differ in
    length.
    """

    def push(self, rows: Mapping[str, npt.ArrayLike], envs: npt.ArrayLike) -> None:
        """Append one row to the streams of some envs.

        Args:
            rows: arrays (M, ...) by field: observations by leaf name (images as uint8), ``action``,
                ``reward``, ``is_first``, ``is_last``, ``is_terminal``, and the declared fields,
                such as the state of a recurrent model after the row.
            envs: (M,) whose streams they continue.

        Raises:
            ValueError: a field is missing, unknown or of another shape.
        """

    def sample(self, batch_size: int, length: int, seed: int | None = None) -> dict[str, Any]:
        """Return sequences of consecutive rows of one stream each.

        Args:
            batch_size: number of sequences B.
            length: rows T of each, after the context.
            seed: fixes the draw; ``None`` continues the buffer's own stream.

        Returns:
            Arrays (B, T + 1, ...) by field, of which row 0 is the context: the row before the
            sequence, whose declared fields a model starts from. ``indices`` (B, T + 1) say which
            rows they are.

        Raises:
            ValueError: no stream has T + 1 rows yet.
        """

    def update(self, indices: npt.ArrayLike, fields: Mapping[str, npt.ArrayLike]) -> None:
        """Write declared fields of rows back; rows that were overwritten since are left alone.

        Args:
            indices: (B, T) as :meth:`sample` returned them.
            fields: arrays (B, T, ...) of some of the declared fields.
        """

    def state(self) -> dict[str, Any]:
        """Return everything that decides later samples, as arrays and plain values."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""

    def __len__(self) -> int:
        """Return the number of rows."""
