"""A replay buffer of streams: sequences of rows, one stream per env.

Row number k of stream i of N goes to slot (k mod the streams' share of the capacity) N + i, so that
the filled slots come first. Random numbers come from NumPy's ``Generator``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.kernels.reference.arrays import Array, integers, shaped, vector
from rlox.kernels.reference.arrays import size as parse_size
from rlox.kernels.reference.replay.parsing import empty_fields, parse_queue, stream, stream_words

BLOCK = 64
"""Number of slots whose changes are recorded together."""


class SequenceReplayBuffer:
    """The last rows of each env's stream, sampled uniformly as sequences of consecutive rows.

    Args:
        capacity: capacity in rows, over all streams.
        fields: shape and dtype of a row's fields by name. Numbers are converted as by assignment
            to an array of the dtype.
        declared: fields that :meth:`update` may overwrite.
        n_envs: number of streams.
        online_length: rows T of the sequences that are sampled once, when they are new, before any
            other; ``None`` samples uniformly only.
        seed: seed of the buffer's own random stream; ``None`` draws one from entropy.

    Raises:
        ValueError: a size is out of range, or a declared field is not in ``fields``.

    Example:
        >>> fields = {"obs": ((2,), "float32"), "is_first": ((), "bool")}
        >>> buffer = SequenceReplayBuffer(100, fields, n_envs=2, seed=0)
        >>> for t in range(9):
        ...     buffer.push({"obs": [[t, 0], [t, 1]], "is_first": [t == 0] * 2}, envs=[0, 1])
        >>> buffer.sample(batch_size=4, length=5)["obs"].shape
        (4, 6, 2)

    Source:
        The online queue is that of Hafner et al. 2025, "Mastering diverse control tasks through
        world models", methods, "Experience replay".
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, tuple[Sequence[int], npt.DTypeLike]],
        *,
        declared: Sequence[str] = (),
        n_envs: int = 1,
        online_length: int | None = None,
        seed: int | None = None,
    ) -> None:
        self.n_envs = parse_size("n_envs", n_envs)
        self._ring = parse_size("capacity", capacity) // self.n_envs
        if self._ring < 2:
            raise ValueError(
                f"capacity must hold at least 2 rows of each of {n_envs} envs, got {capacity}"
            )
        unknown = [name for name in declared if name not in fields]
        if unknown:
            raise ValueError(f"declared must name some of the fields {list(fields)}, got {unknown}")
        self._declared = tuple(declared)
        online = online_length
        self._online_length = None if online is None else parse_size("online_length", online)
        self._fields = empty_fields(self.capacity, fields)
        self._changes = 0
        self._changed = np.zeros(-(-self.capacity // BLOCK), np.int64)
        self._totals = np.zeros(self.n_envs, np.int64)
        self._queued = np.zeros(self.n_envs, np.int64)
        self._queue: deque[tuple[int, int]] = deque()
        self._rng = np.random.default_rng(seed)

    @property
    def capacity(self) -> int:
        """Capacity in rows."""
        return self._ring * self.n_envs

    @property
    def nbytes(self) -> int:
        """Bytes of a full buffer's rows."""
        return sum(field.nbytes for field in self._fields.values())

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(np.minimum(self._totals, self._ring).sum())

    def push(self, rows: Mapping[str, npt.ArrayLike], envs: npt.ArrayLike) -> None:
        """Append one row to the streams of some envs.

        Args:
            rows: arrays (M, ...) by field.
            envs: (M,) envs whose streams the rows continue, each named once.

        Raises:
            ValueError: a field is missing, unknown or of another shape, or an env is out of range;
                nothing is stored.
        """
        streams = integers("envs", vector("envs", envs))
        if len(streams) and not (streams.min() >= 0 and streams.max() < self.n_envs):
            raise ValueError(f"envs must lie in [0, {self.n_envs}), got {streams.tolist()}")
        if len(np.unique(streams)) != len(streams):
            raise ValueError(f"envs must name each stream once, got {streams.tolist()}")
        self._require_names(rows, tuple(self._fields))
        arrays = {name: self._rows(name, rows[name], streams.shape) for name in self._fields}
        slots = self._slots(streams, self._totals[streams])
        for name, array in arrays.items():
            self._fields[name][slots] = array
        self._note(slots)
        self._totals[streams] += 1
        if self._online_length is not None:
            self._enqueue(streams, self._online_length)

    def _rows(
        self, name: str, values: npt.ArrayLike, axes: tuple[int, ...], prefix: str = ""
    ) -> Array:
        """Return checked values of a field, with ``axes`` as leading dimensions."""
        field = self._fields[name]
        return shaped(prefix + name, values, (*axes, *field.shape[1:])).astype(field.dtype)

    def _slots(self, streams: Array, numbers: Array) -> Array:
        slots: Array = numbers % self._ring * self.n_envs + streams
        return slots

    def _note(self, slots: Array) -> None:
        self._changes += 1
        self._changed[slots // BLOCK] = self._changes

    def _require_names(self, given: Mapping[str, Any], names: Sequence[str]) -> None:
        if given.keys() != set(names):
            raise ValueError(f"rows must have the fields {list(names)}, got {list(given)}")

    def _enqueue(self, streams: Array, length: int) -> None:
        for i in streams.tolist():
            if self._totals[i] - 1 - self._queued[i] >= length:
                self._queue.append((i, int(self._queued[i])))
                self._queued[i] += length
        oldest = self._oldest
        while self._queue and self._queue[0][1] < oldest[self._queue[0][0]]:
            self._queue.popleft()

    @property
    def _oldest(self) -> Array:
        return np.maximum(self._totals - self._ring, 0)

    def sample(self, batch_size: int, length: int, seed: int | None = None) -> dict[str, Array]:
        """Return sequences of consecutive rows of one stream each.

        Args:
            batch_size: number of sequences B.
            length: rows T of each, after the context.
            seed: fixes the draw and ignores the online queue; ``None`` continues the
                buffer's own stream.

        Returns:
            Arrays (B, T + 1, ...) by field, of which row 0 is the context, and ``indices``
            (B, T + 1) int64.

        Raises:
            ValueError: no stream has T + 1 rows yet, or a size is out of range.
        """
        size, length = parse_size("batch_size", batch_size), parse_size("length", length)
        oldest = self._oldest
        starts = np.maximum(np.minimum(self._totals, self._ring) - length, 0)
        if not starts.any():
            stored = int(np.minimum(self._totals, self._ring).max())
            raise ValueError(
                f"sequences of {length} rows and their context need {length + 1} rows of one env; "
                f"there are at most {stored}"
            )
        online = [] if seed is not None else self._dequeue(size, length, oldest)
        rng = self._rng if seed is None else np.random.default_rng(seed)
        drawn = rng.integers(int(starts.sum()), size=size - len(online))
        ends = np.cumsum(starts)
        streams = np.searchsorted(ends, drawn, side="right")
        first = oldest[streams] + drawn - (ends - starts)[streams]
        streams = np.concatenate([np.array([i for i, _ in online], np.int64), streams])
        first = np.concatenate([np.array([k for _, k in online], np.int64), first])
        numbers = first[:, None] + np.arange(length + 1)
        slots = self._slots(streams[:, None], numbers)
        batch = {name: field[slots] for name, field in self._fields.items()}
        batch["indices"] = numbers * self.n_envs + streams[:, None]
        return batch

    def _dequeue(self, size: int, length: int, oldest: Array) -> list[tuple[int, int]]:
        taken: list[tuple[int, int]] = []
        while self._queue and len(taken) < size and length == self._online_length:
            env, first = self._queue.popleft()
            if first >= oldest[env]:
                taken.append((env, first))
        return taken

    def update(self, indices: npt.ArrayLike, fields: Mapping[str, npt.ArrayLike]) -> None:
        """Write declared fields of rows back; rows overwritten since then are skipped.

        Args:
            indices: (B, T) from :meth:`sample`.
            fields: arrays (B, T, ...) of some of the declared fields.

        Raises:
            ValueError: a field is not declared, or of another shape.
        """
        rows = integers("indices", indices)
        streams, numbers = rows % self.n_envs, rows // self.n_envs
        kept = (numbers >= self._oldest[streams]) & (numbers < self._totals[streams])
        slots = self._slots(streams, numbers)[kept]
        arrays = {}
        for name, values in fields.items():
            if name not in self._declared:
                raise ValueError(f"declared fields are {list(self._declared)}, got {name!r}")
            arrays[name] = self._rows(name, values, rows.shape)
        self._note(slots)
        for name, array in arrays.items():
            self._fields[name][slots] = array[kept]

    def changed_rows(self, since: int) -> tuple[int, int, list[tuple[int, int]]]:
        """Return the slots that may have changed since an older call.

        Args:
            since: mark that the older call returned; 0 stands for all slots.

        Returns:
            A mark of this moment, the number of filled slots, and ranges (start, stop) of slots.
        """
        filled = self._filled
        blocks = np.flatnonzero(self._changed[: -(-filled // BLOCK)] > since)
        if not len(blocks):
            return self._changes, filled, []
        breaks = np.flatnonzero(np.diff(blocks) > 1)
        starts = blocks[np.concatenate([[0], breaks + 1])] * BLOCK
        stops = np.minimum((blocks[np.concatenate([breaks, [-1]])] + 1) * BLOCK, filled)
        return self._changes, filled, list(zip(starts.tolist(), stops.tolist(), strict=True))

    @property
    def _filled(self) -> int:
        """Number of leading slots that cover all rows."""
        return int(np.minimum(self._totals, self._ring).max()) * self.n_envs

    def rows(self, start: int, stop: int) -> dict[str, Array]:
        """Return a copy of the fields in the slots from ``start`` to ``stop``.

        Raises:
            ValueError: the slots are not filled.
        """
        if not 0 <= start <= stop <= self._filled:
            raise ValueError(f"slots must lie in [0, {self._filled}], got {start} to {stop}")
        return {f"row {name}": field[start:stop].copy() for name, field in self._fields.items()}

    def rest(self) -> dict[str, Any]:
        """Return a copy of the part of :meth:`state` without a row per slot."""
        return {
            "totals": self._totals.copy(),
            "queued": self._queued.copy(),
            "queue": np.array(self._queue, np.int64).reshape(-1, 2),
            "rng": stream_words(self._rng),
        }

    def state(self) -> dict[str, Any]:
        """Return a copy of the complete state for later samples."""
        return self.rows(0, self._filled) | self.rest()

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a :meth:`state`.

        Raises:
            ValueError: a part is missing or has another shape; nothing is restored.
        """
        names = {f"row {name}": name for name in self._fields}
        self._require_names(state, (*names, "totals", "queued", "queue", "rng"))
        totals, queued, queue = parse_queue(state, self.n_envs, self._online_length or 0)
        filled = int(np.minimum(totals, self._ring).max()) * self.n_envs
        rows = {n: self._rows(n, state[key], (filled,), "row ") for key, n in names.items()}
        rng = stream(state["rng"])
        for name, array in rows.items():
            self._fields[name][:filled] = array
        self._totals, self._queued, self._rng = totals, queued, rng
        self._queue = deque((int(i), int(k)) for i, k in queue)
        self._changes += 1
        self._changed[:] = self._changes
