"""Replay buffers in a Ray actor that draw batches ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.replay.buffers import BufferOptions, make_buffer

from rlox_distributed.options import RayBufferOptions
from rlox_distributed.ray_worker import RayWorker

Arrays = dict[str, npt.NDArray[Any]]

STEP = ("obs", "actions", "rewards", "terminated", "truncated", "next_obs")

AT_ONCE = 64
"""Most vector steps sent together."""

DEADLINE = 120.0
"""Longest time of a call in seconds; the largest call sends a whole buffer."""


def make_ray_buffer(asked: BufferOptions, *, options: RayBufferOptions) -> RayReplayBuffer:
    """Return a :class:`RayReplayBuffer`."""
    return RayReplayBuffer(asked, options)


class RayReplayBuffer:
    """The buffer ``uniform`` in a Ray actor; a ``ReplayBuffer`` that can be saved in segments.

    Vector steps are sent together, with the next call that needs them. If it draws ahead, the next
    batch is drawn and sent while the caller learns from the present one. It is requested when the
    present one is returned, so batches depend only on the seed, and lack the steps pushed between
    two calls of :meth:`sample`.

    Args:
        asked: the algorithm's requirements.
        options: the buffer's own options.

    Raises:
        ConfigError: there is no cluster.
    """

    def __init__(self, asked: BufferOptions, options: RayBufferOptions) -> None:
        self._worker = RayWorker(
            f"{__name__}:make_host", (asked,), name="the replay buffer",
            address=options.ray_address, cpus=options.ray_cpus,
        )  # fmt: skip
        self._ahead = options.draw_ahead
        self._capacity = asked.capacity
        self._length = 0
        self._pushed: list[Sequence[npt.NDArray[Any]]] = []
        self._asked = 0
        """Transitions of the batch under way; 0 for none."""
        self._drawn: tuple[int, Arrays] | None = None
        """Requested size and content of a batch that was received early."""

    def __len__(self) -> int:
        """Return the number of stored transitions."""
        if self._length < self._capacity:  # a full one stays full
            self._take_in()
            if self._pushed:
                self._call("__len__")
        return self._length

    def push_batch(
        self,
        obs: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        next_obs: npt.ArrayLike,
    ) -> None:
        """Store a copy of one vector step; see :class:`rlox.protocols.ReplayBuffer`."""
        step = (obs, actions, rewards, terminated, truncated, next_obs)
        self._pushed.append([np.array(part) for part in step])
        if len(self._pushed) >= AT_ONCE:
            self._call("__len__")

    def sample(self, batch_size: int) -> Arrays:
        """Draw B transitions; see :class:`rlox.protocols.ReplayBuffer`.

        Raises:
            WorkerLostError: the actor or its node died.
        """
        self._take_in()
        drawn, self._drawn = self._drawn, None
        if drawn is None or drawn[0] != batch_size:
            batch = self._call("sample", batch_size)[1]
        else:
            batch = drawn[1]
        if self._ahead:
            self._worker.send("call", ("sample", (batch_size,)), self._steps())
            self._asked = batch_size
        return batch

    def truncate_episodes(self) -> None:
        """Truncate running episodes, as when the envs are reset."""
        self._call("truncate_episodes")

    def changed_rows(self, since: int) -> tuple[int, int, Sequence[tuple[int, int]]]:
        """Return the changed rows; see :class:`rlox.protocols.SegmentedBuffer`."""
        answer: tuple[int, int, Sequence[tuple[int, int]]] = self._call("changed_rows", since)[0]
        return answer

    def rows(self, start: int, stop: int) -> Arrays:
        """Return a copy of rows; see :class:`rlox.protocols.SegmentedBuffer`."""
        return self._call("rows", start, stop)[1]

    def rest(self) -> dict[str, Any]:
        """Return the state except the rows, with the batch drawn ahead."""
        rest = self._call("rest")[1]
        if self._drawn is None:
            return rest
        asked, batch = self._drawn
        ahead = {f"ahead.{name}": array.copy() for name, array in batch.items()}
        return {**rest, **ahead, "ahead": np.array(asked)}

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return a copy of the complete state."""
        return {**self.rest(), **self.rows(0, self.changed_rows(0)[1])}

    def set_state(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Restore a :meth:`state` exactly."""
        self._take_in()
        self._pushed.clear()
        state = dict(state)
        asked = state.pop("ahead", None)
        ahead = {name[6:]: state.pop(name) for name in list(state) if name.startswith("ahead.")}
        self._drawn = None if asked is None else (int(asked), ahead)
        self._call("set_state", state)

    def _steps(self) -> Arrays:
        """Return the unsent vector steps, by part (K, N, ...), and forget them."""
        steps, self._pushed = self._pushed, []
        return dict(zip(STEP, map(np.stack, zip(*steps, strict=True)), strict=False))

    def _take_in(self) -> None:
        """Receive the batch under way."""
        if self._asked:
            asked, self._asked = self._asked, 0
            (self._length, _), batch = self._worker.receive(DEADLINE)
            self._drawn = asked, batch

    def _call(self, method: str, *arguments: Any) -> tuple[Any, Arrays]:
        """Send the pushed steps with a call of the buffer; return its answer and arrays."""
        self._take_in()
        asked = (method, arguments)
        sent = self._worker.call("call", asked, self._steps(), deadline=DEADLINE)
        (self._length, answer), arrays = sent
        return answer, arrays


class _Host:
    """The buffer in the Ray actor.

    Args:
        asked: the algorithm's requirements.
    """

    def __init__(self, asked: BufferOptions) -> None:
        self._buffer: Any = make_buffer("uniform", asked)

    def call(self, asked: tuple[str, tuple[Any, ...]], steps: Arrays) -> tuple[Any, Arrays]:
        """Store the vector steps, then call a method of the buffer with arguments.

        Returns:
            The buffer's length with the answer, and the answer's arrays.
        """
        for step in zip(*(steps[part] for part in STEP), strict=True) if steps else ():
            self._buffer.push_batch(*step)
        method, arguments = asked
        answer = getattr(self._buffer, method)(*arguments)
        if isinstance(answer, dict):
            return (len(self._buffer), None), answer
        return (len(self._buffer), answer), {}

    def close(self) -> None:
        """Do nothing: the buffer ends with its process."""


def make_host(asked: BufferOptions, _beat: Any) -> _Host:
    """Return the object that answers in the Ray actor."""
    return _Host(asked)
