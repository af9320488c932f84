"""Columns of recordings, completed to six arrays at once or in pieces; digests and returns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import rlox
from rlox.errors import DatasetError, suggest
from rlox.files import require_memory_for
from rlox.spaces.rows import find_misfit

Array = npt.NDArray[Any]
Columns = dict[str, Array]
Pieces = Iterator[Columns]

BLOCK_ROWS = 2**16
"""Rows per block in the computation of returns."""

KEY = "rlox"
"""Name of the metadata in every format."""

DIGEST = "rlox_digest"
"""Name of the digest in every format."""

Texts = dict[str, Any]
"""Metadata and digest by their names in files; damaged files may hold other types."""

NAMES = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated")

D4RL_NAMES = {
    "obs": "observations",
    "next_obs": "next_observations",
    "terminated": "terminals",
    "truncated": "timeouts",
}
MINARI_NAMES = {"terminated": "terminations", "truncated": "truncations"}
OTHER_NAMES = {name: ours for k in (D4RL_NAMES, MINARI_NAMES) for ours, name in k.items()}


def known_columns(names: list[str]) -> dict[str, str]:
    """Map the file's names of known columns to our names.

    Raises:
        DatasetError: two names mean the same column, or a column is missing.
    """
    found = {name: OTHER_NAMES.get(name, name) for name in names}
    found = {name: ours for name, ours in found.items() if ours in NAMES}
    twice = [name for name in found if list(found.values()).count(found[name]) > 1]
    if twice:
        raise DatasetError(f"the columns {' and '.join(map(repr, twice))} mean the same")
    there, ours = f"there are {', '.join(names) or 'none'}", set(found.values())
    for name in ("obs", "actions", "rewards"):
        if name not in ours:
            hint = f"{suggest(name, names)}; {there}"
            if name != "rewards" and any(other.startswith(name[:3]) for other in names):
                how = f"rlox dataset convert TABLE OUT --{name} '{name}_*'"
                hint = f"; {there}; to join several: {how}"
            raise DatasetError(f"the column '{name}' is missing{hint}")
    if ours.isdisjoint(("terminated", "truncated")):
        raise DatasetError(
            "the columns 'terminated' and 'truncated' are missing, so it is unknown where episodes "
            f"end; {there}"
        )
    return found


def complete(columns: Mapping[str, npt.ArrayLike]) -> Columns:
    """Return all six columns, checked; see :class:`~rlox_offline.datasets.Dataset`.

    Raises:
        DatasetError: a column is missing, a shape is wrong, or a value is not finite.
    """
    given = {ours: np.asarray(columns[name]) for name, ours in known_columns(list(columns)).items()}
    data = _typed(given)
    if "next_obs" in given:
        ended = data["terminated"] | data["truncated"]
        data["truncated"][-1] |= not ended[-1]
        return data
    return _with_next_obs(data)


def _typed(given: Columns) -> Columns:
    """Return checked copies in the training dtypes, all with the same number of rows."""
    n = len(given["rewards"]) if given["rewards"].ndim else 0
    if n < 1:
        raise DatasetError("the dataset holds no transitions")
    data: Columns = {}
    for name in NAMES:
        column = given.get(name)
        if column is None:
            if name != "next_obs":
                data[name] = np.zeros(n, np.bool_)
            continue
        if column.dtype.kind not in "biuf":
            raise DatasetError(f"{name} must hold numbers, got {column.dtype}")
        if column.ndim == 0 or len(column) != n:
            rows = len(column) if column.ndim else "no"
            raise DatasetError(f"{name} has {rows} rows, but rewards has {n}")
        _require_finite(name, column)
        data[name] = _reshaped(name, column, n)
    if "next_obs" in data and data["next_obs"].shape != data["obs"].shape:
        raise DatasetError(
            f"obs and next_obs differ in shape: {data['obs'].shape} and {data['next_obs'].shape}"
        )
    return data


def _reshaped(name: str, column: Array, n: int) -> Array:
    if name.endswith("obs"):
        dtype = np.uint8 if column.dtype == np.uint8 else np.float32
        return np.array(column.reshape(n, 1) if column.ndim == 1 else column, dtype)
    if name == "actions":
        if column.dtype.kind in "biu":
            if column.size != n:
                raise DatasetError(f"integer actions must have shape ({n},), got {column.shape}")
            return np.array(column.reshape(n), np.int64)
        if column.ndim > 2:
            raise DatasetError(f"actions must have shape ({n}, act_dim), got {column.shape}")
        return np.array(column.reshape(n, -1), np.float32)
    if column.size != n:
        raise DatasetError(f"{name} must have shape ({n},), got {column.shape}")
    if name != "rewards" and (index := find_misfit(column, 0, 1)) is not None:
        raise DatasetError(f"{name} must hold 0 and 1 only, got {column[index]}")
    return np.array(column.reshape(n), np.float32 if name == "rewards" else np.bool_)


def _require_finite(name: str, column: Array) -> None:
    """Refuse values that are not finite in float32."""
    if column.dtype.kind != "f":
        return
    with np.errstate(over="ignore"):
        rows = column.astype(np.float32, copy=False).reshape(len(column), -1)
    finite = np.isfinite(rows).all(1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise DatasetError(
            f"{name} holds values that are not finite in float32, first in row {row}; "
            "remove these episodes"
        )


def _with_next_obs(data: Columns) -> Columns:
    """Add the next observations, and drop rows whose next observation is unknown."""
    terminated, truncated = data["terminated"], data["truncated"]
    ended = terminated | truncated
    if not ended.any():
        raise DatasetError(
            "no transition ends an episode, so it is unknown which observations follow each other; "
            "pass 'next_obs', or mark the ends in 'terminated' and 'truncated'"
        )
    next_obs = np.concatenate([data["obs"][1:], data["obs"][-1:]])
    # nothing is bootstrapped after a termination, so any observation will do
    next_obs[terminated] = data["obs"][terminated]
    unknown = truncated & ~terminated
    unknown[-1] |= not ended[-1]
    before = np.flatnonzero(unknown) - 1
    before = before[before >= 0]
    truncated[before] |= ~ended[before]
    if unknown.all():
        raise DatasetError("without 'next_obs', no transition's next observation is known")
    return {name: column[~unknown] for name, column in {**data, "next_obs": next_obs}.items()}


def whole_episodes(pieces: Pieces) -> Pieces:
    """Yield the six columns of a recording in pieces, which end with an episode where possible.

    Together the pieces equal :func:`complete` of the whole recording.

    Args:
        pieces: columns of consecutive transitions; an episode may continue in the next piece.

    Raises:
        DatasetError: as in :func:`complete`; the message names the rows.
    """
    held: list[Columns] = []
    first_row = 0
    for piece in pieces:
        held.append(piece)
        cut = _last_end(piece)
        if not cut and "next_obs" not in piece:
            continue  # joined later, once: an episode may span any number of pieces
        rows = _joined(held)
        n = _size(rows)
        # without an end, hold back the last row: if it is the recording's last, it has to be
        # truncated
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
    """Return the number of rows up to and including the last episode end; 0 without one."""
    ends = [rows[name] for name in ("terminated", "truncated") if name in rows]
    if not ends or any(end.shape != (_size(rows),) for end in ends):
        return 0  # ``complete`` refuses wrong columns later
    ended = np.flatnonzero(np.logical_or.reduce([end.astype(np.bool_) for end in ends]))
    return int(ended[-1]) + 1 if len(ended) else 0


def _completed(rows: Columns, first_row: int, *, goes_on: bool) -> Pieces:
    n = _size(rows)
    if "next_obs" not in rows:
        if first_row and not _last_end(rows):  # no episode of the recording ends
            rows = {**rows, "truncated": np.arange(n) == n - 1}
        ends = (np.asarray(rows.get(name, False), np.bool_) for name in ("truncated", "terminated"))
        truncated, terminated = ends
        if np.all(truncated & ~terminated):  # one-row episodes without next observations
            return
    try:
        data = complete(rows)
    except DatasetError as error:
        raise DatasetError(f"{error} (in rows {first_row} to {first_row + n - 1})") from None
    if goes_on:
        data["truncated"][-1] = False
    yield data


class Digest:
    """SHA-256 of the metadata and each column's type and values, whatever the pieces' sizes.

    Args:
        metadata: JSON text.
    """

    def __init__(self, metadata: str) -> None:
        self._metadata = metadata
        self._columns: dict[str, Any] = {}

    def add(self, columns: Columns) -> None:
        """Add rows (B, ...) of each column, under any of its known names."""
        for name, ours in known_columns(list(columns)).items():
            column = np.ascontiguousarray(columns[name])
            if ours not in self._columns:
                kind = f"{column.dtype.str} {column.shape[1:]}"
                self._columns[ours] = hashlib.sha256(kind.encode())
            self._columns[ours].update(column.reshape(-1).view(np.uint8))

    def text(self) -> str:
        """Return the digest of all added rows, 64 hexadecimal digits."""
        parts = [f"{name} {self._columns[name].hexdigest()}" for name in sorted(self._columns)]
        return hashlib.sha256("\n".join([self._metadata, *parts]).encode()).hexdigest()


def checked(pieces: Iterator[Columns], texts: Mapping[str, Any]) -> Iterator[Columns]:
    """Yield the pieces; after the last one, refuse contents that differ from the saved ones.

    Files from other tools have no digest, and are not checked. A thread computes the digest while
    the caller uses a piece, so the caller must not change a piece in place.

    Raises:
        DatasetError: the digest differs.
    """
    if DIGEST not in texts:
        yield from pieces
        return
    digest = Digest(metadata_text(texts))
    with ThreadPoolExecutor(1) as pool:
        for piece in pieces:
            added = pool.submit(digest.add, piece)
            yield piece
            added.result()
    if digest.text() != texts[DIGEST]:
        raise DatasetError(
            "its contents have changed since it was saved: it is damaged or was edited; load "
            "another copy, or record it again"
        )


def require_loading(n_bytes: int) -> None:
    """Refuse arrays too large for memory, where they need room twice: as read and as converted.

    Raises:
        MemoryLimitError: there is not enough memory.
    """
    require_memory_for("its arrays", None, 2 * n_bytes, "stream it, with 'stream:' before its name")


def metadata_text(texts: Mapping[str, Any]) -> str:
    """Return a file's metadata as JSON text, ``"{}"`` if it has none.

    Raises:
        DatasetError: the metadata is not text.
    """
    text = texts.get(KEY, "{}")
    if not isinstance(text, str):
        raise DatasetError(f"the metadata must be text, got {type(text).__name__}")
    return text


def discounted_returns(
    rows: Mapping[str, Array] | Array,
    gamma: float,
    reward_scale: float = 1.0,
    reward_shift: float = 0.0,
    *,
    out: Array | None = None,
) -> Array:
    """Return G_t = r_t + γ G_{t+1}, without G_{t+1} if the task ended.

    A cut episode is assumed to repeat its last reward for ever: G_T = r_T / (1 - γ).

    Args:
        rows: ``rewards``, ``terminated`` and ``truncated`` (N,) of a recording by name.
        gamma: discount γ.
        reward_scale: factor of the rewards.
        reward_shift: added after scaling.
        out: (N,) float32 array for the result.

    Raises:
        DatasetError: an episode is cut and γ is 1.

    Source:
        The rule for cut episodes: nakamotoo/Cal-QL, ``calc_return_to_go``, which applies it to
        Kitchen, and to AntMaze's and Adroit's episodes without success.
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
    """Return the first row whose next observation is not the next row's, or ``None``.

    Args:
        rows: ``obs``, ``next_obs``, ``terminated`` and ``truncated`` of consecutive transitions.
    """
    differ = rows["next_obs"][:-1] != rows["obs"][1:]
    wrong = differ.any(axis=tuple(range(1, differ.ndim)))
    wrong &= ~(rows["terminated"] | rows["truncated"])[:-1]
    return int(np.argmax(wrong)) if wrong.any() else None
