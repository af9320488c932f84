"""Recordings in pieces, cut where episodes end, with episode statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.errors import DatasetError

from rlox_offline.datasets.columns import Columns, complete

__all__ = ["EpisodeStatistics", "whole_episodes"]

Array = npt.NDArray[Any]


def whole_episodes(pieces: Iterator[Columns]) -> Iterator[Columns]:
    """Yield the six columns of a recording, cut where an episode ends if any does.

    Together they are what :func:`~rlox_offline.datasets.columns.complete` returns of all at once.

    Args:
        pieces: columns of consecutive transitions; an episode may go on from one to the next.

    Raises:
        DatasetError: as there; the text says which rows it is about.
    """
    held: Columns | None = None
    first_row = 0
    for piece in pieces:
        rows = piece if held is None else _joined(held, piece)
        n, cut = _size(rows), _last_end(rows)
        if cut == 0 and ("next_obs" not in rows or n < 2):
            held = rows
            continue
        # without an end the last row is held back: only of the recording's last one it is known
        # that nothing follows
        at = cut or n - 1
        yield from _completed({name: rows[name][:at] for name in rows}, first_row, goes_on=not cut)
        held = {name: rows[name][at:] for name in rows} if at < n else None
        first_row += at
    if held is not None:
        yield from _completed(held, first_row, goes_on=False)


def _size(rows: Columns) -> int:
    return max((len(column) for column in rows.values() if column.ndim), default=0)


def _joined(before: Columns, after: Columns) -> Columns:
    try:
        return {name: np.concatenate([before[name], after[name]]) for name in before}
    except (KeyError, ValueError) as error:
        raise DatasetError(f"the pieces of the recording do not fit together: {error}") from None


def _last_end(rows: Columns) -> int:
    """Return the number of rows up to the last end of an episode; 0 if none ends."""
    ends = [rows[name] for name in ("terminated", "truncated") if name in rows]
    if not ends or any(end.shape != (_size(rows),) for end in ends):
        return 0  # wrong columns are refused when they are completed
    ended = np.flatnonzero(np.logical_or.reduce([end.astype(np.bool_) for end in ends]))
    return int(ended[-1]) + 1 if len(ended) else 0


def _completed(rows: Columns, first_row: int, *, goes_on: bool) -> Iterator[Columns]:
    n = _size(rows)
    if first_row and "next_obs" not in rows:
        rows = _with_an_end(rows, n)
    if "next_obs" not in rows and _nothing_follows(rows):
        return
    try:
        data = complete(rows)
    except DatasetError as error:
        raise DatasetError(f"{error} (in rows {first_row} to {first_row + n - 1})") from None
    if goes_on:
        data["truncated"][-1] = False
    yield data


def _with_an_end(rows: Columns, n: int) -> Columns:
    """Mark the last row as truncated if no episode of the recording ends."""
    if _last_end(rows):
        return rows
    truncated = np.zeros(n, np.bool_)
    truncated[-1] = True
    return {**rows, "truncated": truncated}


def _nothing_follows(rows: Columns) -> bool:
    """Return whether each row is a cut episode by itself, which nothing can be learnt from."""
    terminated = np.asarray(rows.get("terminated", False), np.bool_)
    return bool(np.all(np.asarray(rows.get("truncated", False), np.bool_) & ~terminated))


class EpisodeStatistics:
    """What is known of the episodes of a row of pieces."""

    def __init__(self) -> None:
        self.returns: list[float] = []
        self.lengths: list[int] = []
        self.initial_obs: list[Array] = []
        self.terminated = 0
        self._ended = True

    def add(self, piece: Columns) -> None:
        """Take in the next transitions; the last episode may go on."""
        n = len(piece["rewards"])
        ended = piece["terminated"] | piece["truncated"]
        starts = np.flatnonzero(np.concatenate([[self._ended], ended[:-1]]))
        self.terminated += int(piece["terminated"].sum())
        edges = np.concatenate([starts, [n]])
        if not self._ended:
            self.returns[-1] += float(piece["rewards"][: edges[0]].sum(dtype=np.float64))
            self.lengths[-1] += int(edges[0])
        if len(starts):
            sums = np.add.reduceat(piece["rewards"].astype(np.float64), starts)
            self.returns += sums.tolist()
            self.lengths += np.diff(edges).tolist()
            self.initial_obs += list(piece["obs"][starts])
        self._ended = bool(ended[-1])
