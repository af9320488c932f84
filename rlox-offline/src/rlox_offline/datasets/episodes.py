"""Recordings in pieces, cut where episodes end, and the returns reached from each transition on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import rlox
from rlox.errors import DatasetError

from rlox_offline.datasets.columns import Array, Columns, Pieces, complete
from rlox_offline.datasets.protocol import OfflineDataset

BLOCK_ROWS = 2**16
"""Rows whose returns are computed at a time."""


def whole_episodes(pieces: Pieces) -> Pieces:
    """Yield the six columns of a recording, cut where an episode ends if any does.

    Together they are what :func:`~rlox_offline.datasets.columns.complete` returns of all at once.

    Args:
        pieces: columns of consecutive transitions; an episode may go on from one to the next.

    Raises:
        DatasetError: as there; the text says which rows it is about.
    """
    held: list[Columns] = []
    first_row = 0
    for piece in pieces:
        held.append(piece)
        cut = _last_end(piece)
        if not cut and "next_obs" not in piece:
            continue  # joined once: an episode may have any number of pieces
        rows = _joined(held)
        n = _size(rows)
        # without an end the last row is held back: only of the recording's last one it is known
        # that nothing follows
        at = n - _size(piece) + cut if cut else n - 1
        held = [{name: rows[name][at:] for name in rows}] if at < n else []
        if at:
            before = {name: rows[name][:at] for name in rows}
            yield from _completed(before, first_row, goes_on=not cut)
        first_row += at
    if held:
        yield from _completed(_joined(held), first_row, goes_on=False)


def _joined(pieces: list[Columns]) -> Columns:
    if len(pieces) == 1:
        return pieces[0]
    try:
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    except (KeyError, ValueError) as error:
        raise DatasetError(f"the recording's pieces do not fit together: {error}") from None


def _size(rows: Columns) -> int:
    return max((len(column) for column in rows.values() if column.ndim), default=0)


def _last_end(rows: Columns) -> int:
    """Return the number of rows up to the last end of an episode; 0 if none ends."""
    ends = [rows[name] for name in ("terminated", "truncated") if name in rows]
    if not ends or any(end.shape != (_size(rows),) for end in ends):
        return 0  # wrong columns are refused when they are completed
    ended = np.flatnonzero(np.logical_or.reduce([end.astype(np.bool_) for end in ends]))
    return int(ended[-1]) + 1 if len(ended) else 0


def _completed(rows: Columns, first_row: int, *, goes_on: bool) -> Pieces:
    n = _size(rows)
    if "next_obs" not in rows:
        if first_row and not _last_end(rows):  # no episode of the recording ends
            rows = {**rows, "truncated": np.arange(n) == n - 1}
        ends = (np.asarray(rows.get(name, False), np.bool_) for name in ("truncated", "terminated"))
        truncated, terminated = ends
        if np.all(truncated & ~terminated):  # each row is an episode, and nothing follows any
            return
    try:
        data = complete(rows)
    except DatasetError as error:
        raise DatasetError(f"{error} (in rows {first_row} to {first_row + n - 1})") from None
    if goes_on:
        data["truncated"][-1] = False
    yield data


class DatasetWithReturns:
    """A dataset whose samples also hold the returns from their transitions on.

    Args:
        dataset: draws with a seed the rows that :class:`rlox.OfflineDatasetBuffer` draws with it.
        returns_to_go: (N,) of all its transitions.
    """

    def __init__(self, dataset: OfflineDataset, returns_to_go: Array) -> None:
        self._dataset = dataset
        self.returns_to_go = returns_to_go

    def __len__(self) -> int:
        """Return the number of transitions."""
        return len(self._dataset)

    def sample(self, batch_size: int, seed: int) -> dict[str, Array]:
        """Draw transitions as the dataset does, with ``returns_to_go`` (B,)."""
        chosen = np.random.default_rng(seed).integers(len(self), size=batch_size)
        rows = self._dataset.sample(batch_size, seed)
        return {**rows, "returns_to_go": self.returns_to_go[chosen]}


def discounted_returns(
    rows: Mapping[str, Array] | Array,
    gamma: float,
    reward_scale: float = 1.0,
    reward_shift: float = 0.0,
    *,
    out: Array | None = None,
) -> Array:
    """Return G_t = r_t + γ G_{t+1}, without G_{t+1} if the task ended.

    An episode that was cut is taken to go on with its last reward for ever: G_T = r_T / (1 - γ).

    Args:
        rows: ``rewards``, ``terminated`` and ``truncated`` (N,) of a recording by name.
        gamma: discount γ.
        reward_scale: what rewards are multiplied by.
        reward_shift: what is then added to them.
        out: (N,) float32 to write into.

    Raises:
        DatasetError: an episode is cut and γ is 1.

    Source:
        The rule for cut episodes: nakamotoo/Cal-QL, ``calc_return_to_go``, where it is that of
        Kitchen, and of AntMaze's and Adroit's episodes without success.
    """
    returns = np.empty(len(rows["rewards"]), np.float32) if out is None else out
    after = 0.0
    for stop in range(len(returns), 0, -BLOCK_ROWS):
        block = slice(max(stop - BLOCK_ROWS, 0), stop)
        terminated, truncated = rows["terminated"][block], rows["truncated"][block]
        rewards = reward_scale * rows["rewards"][block].astype(np.float64) + reward_shift
        cut = truncated & ~terminated
        if cut.any():
            if gamma == 1:
                raise DatasetError(
                    "the dataset has episodes that were cut, whose returns are unknown without a "
                    "discount; choose a gamma below 1"
                )
            rewards[cut] /= 1 - gamma
        found = rlox.compute_discounted_returns(rewards, terminated | truncated, after, gamma)
        returns[block], after = found, float(found[0])
    return returns


def first_gap(rows: Mapping[str, Array]) -> int | None:
    """Return the first row whose episode goes on with another observation, or ``None``.

    Args:
        rows: ``obs``, ``next_obs``, ``terminated`` and ``truncated`` of consecutive transitions.
    """
    differ = rows["next_obs"][:-1] != rows["obs"][1:]
    wrong = differ.any(axis=tuple(range(1, differ.ndim)))
    wrong &= ~(rows["terminated"] | rows["truncated"])[:-1]
    return int(np.argmax(wrong)) if wrong.any() else None
