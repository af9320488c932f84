"""Sequence packing into rows of fixed length (Johnson 1973)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from rlox.kernels.reference.arrays import Array, size, vector


@dataclass(frozen=True, eq=False)
class PackedSequences:
    """Sequences packed into R rows; unpacks as ``packed, masks, positions``."""

    packed: npt.NDArray[np.int64]
    """(R, max_len) tokens or 0; or positions in the concatenated sequences or -1."""
    masks: npt.NDArray[np.bool_]
    """(R, max_len) True where there is a token."""
    positions: npt.NDArray[np.int64]
    """(R, max_len) position within its own sequence; 0 in padding."""
    indices: npt.NDArray[np.int64]
    """(S,) the sequences in the order of the rows."""
    rows: npt.NDArray[np.int64]
    """(S,) the row of each entry of ``indices``."""
    cu_seqlens: npt.NDArray[np.int32]
    """(S + 1,) start of each sequence, and end of the last, without the padding."""

    def __iter__(self) -> Iterator[Array]:
        return iter((self.packed, self.masks, self.positions))


def pack_sequences(sequences: Iterable[Any], max_len: SupportsIndex) -> PackedSequences:
    """Pack sequences into rows by first-fit decreasing.

    Sequences are placed from the longest to the shortest, equal ones in order, each into the first
    row with room; this takes at most 11/9 of the fewest possible rows, plus one.

    Args:
        sequences: lengths, or arrays (L,) of integer tokens.
        max_len: tokens per row.

    Raises:
        ValueError: a length lies outside [1, max_len], or a token does not fit int64.
        TypeError: tokens or lengths are not integers; a bool is not a length.

    Example:
        >>> packed, masks, positions = pack_sequences([3, 2, 2], 5)
        >>> packed.tolist()
        [[0, 1, 2, 3, 4], [5, 6, -1, -1, -1]]
        >>> positions.tolist()
        [[0, 1, 2, 0, 1], [0, 1, 0, 0, 0]]
    """
    room = size("max_len", max_len)
    items = list(sequences)
    has_tokens = bool(items) and hasattr(items[0], "__len__")
    if has_tokens:
        tokens = [_tokens(item) for item in items]
    else:
        ends = np.cumsum([size("every length", item) for item in items], dtype=np.int64)
        tokens = [
            np.arange(end - int(length), end) for end, length in zip(ends, items, strict=True)
        ]
    rows = _first_fit_decreasing([len(t) for t in tokens], room)
    packed = np.full((len(rows), room), 0 if has_tokens else -1, np.int64)
    masks = np.zeros((len(rows), room), np.bool_)
    positions = np.zeros((len(rows), room), np.int64)
    for r, row in enumerate(rows):
        at = 0
        for sequence in row:
            span = slice(at, at + len(tokens[sequence]))
            packed[r, span], masks[r, span] = tokens[sequence], True
            positions[r, span] = np.arange(len(tokens[sequence]))
            at = span.stop
    indices = [sequence for row in rows for sequence in row]
    return PackedSequences(
        packed,
        masks,
        positions,
        np.array(indices, np.int64),
        np.array([r for r, row in enumerate(rows) for _ in row], np.int64),
        np.cumsum([0, *(len(tokens[i]) for i in indices)], dtype=np.int32),
    )


def _tokens(values: npt.ArrayLike) -> Array:
    tokens = vector("tokens", values)
    if tokens.size and tokens.dtype.kind == "f":
        raise TypeError(f"tokens must be integers, got dtype {tokens.dtype}")
    if tokens.size and tokens.max() > np.iinfo(np.int64).max:
        raise ValueError(f"tokens must fit int64, got {tokens.max()}")
    return tokens.astype(np.int64)


def _first_fit_decreasing(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Return the sequences of each row."""
    for length in lengths:
        if not 1 <= length <= room:
            raise ValueError(f"every length must lie in [1, {room}], got {length}")
    rows: list[list[int]] = []
    left: list[int] = []
    for sequence in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        row = next((r for r, free in enumerate(left) if free >= lengths[sequence]), len(rows))
        if row == len(rows):
            rows.append([])
            left.append(room)
        rows[row].append(sequence)
        left[row] -= lengths[sequence]
    return rows
