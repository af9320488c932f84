"""Large buffers in checkpoints: the rows that changed, in segment files.

A segment has the rows of a fixed range of slots, so that those of a ring stay as they are until
they are overwritten. A save copies, digests and writes the segments with a row that changed since
the last one, and refers to the files of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from rlox.errors import CheckpointError
from rlox.protocols import SegmentedBuffer, StatefulBuffer
from rlox.training.segment_files import SEGMENTS_KEY, Arrays, SegmentFolder

__all__ = ["SEGMENT_BYTES", "SavedBuffer", "segment_reader", "writing_segments"]

SEGMENT_BYTES = 1 << 18
"""Bytes of a segment, about: the number of its rows is a power of two."""

FEWEST_ROWS = 64
"""Rows of a segment at least, so that large images do not make a file of each."""

_writing: ContextVar[bool] = ContextVar("writing_segments", default=False)


@contextmanager
def writing_segments() -> Iterator[None]:
    """Let :meth:`SavedBuffer.state` return the buffer instead of a copy of its contents."""
    token = _writing.set(True)
    try:
        yield
    finally:
        _writing.reset(token)


class SavedBuffer:
    """A buffer as checkpoints hold it, and which of its rows the last ones have.

    An algorithm keeps one for each buffer and puts :meth:`state` into its ``state_dict``.

    Args:
        buffer: saved in segments if it is a :class:`rlox.protocols.SegmentedBuffer`, else whole.
    """

    def __init__(self, buffer: StatefulBuffer) -> None:
        self.buffer: Any = buffer
        self._segmented = isinstance(buffer, SegmentedBuffer)
        self._mark = 0
        self._rows_per_file = 0
        self._files: list[tuple[str, int]] = []
        """Digest and bytes of every segment, as they were at the mark."""
        self._written: set[tuple[Path, str]] = set()
        """Folders and digests of the segments that this object has written."""

    def state(self) -> Any:
        """Return a copy of the buffer's state, or this object while a checkpoint is written."""
        return self if self._segmented and _writing.get() else self.buffer.state()

    def rest(self) -> Mapping[str, Any]:
        """Return what is not in rows."""
        rest: Mapping[str, Any] = self.buffer.rest()
        return rest

    def write(self, folder: SegmentFolder, name: str) -> dict[str, Any]:
        """Write the segments that changed since the last call, and return the list of all.

        Args:
            folder: segments that it lacks are written too.
            name: of the buffer in the state, which is stored in every segment.

        Raises:
            OSError: a segment cannot be written; a later call writes it.
        """
        mark, rows, changed = self.buffer.changed_rows(self._mark)
        if not self._rows_per_file and rows:
            self._rows_per_file = rows_per_file(self.buffer.rows(0, 1))
        size = self._rows_per_file or FEWEST_ROWS
        count = max(-(-rows // size), 1)
        stale = _stale(changed, size, count)
        stale[len(self._files) :] = True
        files = []
        for k in range(count):
            known = None if stale[k] else self._files[k]
            if (
                known is None
                or (folder.path, known[0]) not in self._written
                or not folder.holds(*known)
            ):
                arrays = self.buffer.rows(k * size, min((k + 1) * size, rows))
                known = folder.write(arrays, _about(name, k * size))
                self._written.add((folder.path, known[0]))
            files.append(known)
        folder.sync()
        dropped = {digest for digest, _ in self._files} - {digest for digest, _ in files}
        self._written = {pair for pair in self._written if pair[1] not in dropped}
        if rows:  # the segment of an empty buffer is none of its later ones
            self._mark, self._files = mark, files
        return {"rows": rows, "rows_per_file": size, "files": [list(file) for file in files]}


def rows_per_file(row: Mapping[str, Any]) -> int:
    """Return the number of rows of a segment, from the arrays (1, ...) of one row."""
    size = max(sum(np.asarray(array).nbytes for array in row.values()), 1)
    return max(1 << max((SEGMENT_BYTES // size).bit_length() - 1, 0), FEWEST_ROWS)


def _stale(changed: Any, size: int, count: int) -> np.ndarray[Any, Any]:
    """Return which of ``count`` segments have a row in the ranges (M, 2) of changed slots."""
    ranges = np.asarray(changed, np.int64).reshape(-1, 2)
    ranges = ranges[ranges[:, 0] < ranges[:, 1]]
    ends = np.zeros(count + 1, np.int64)
    np.add.at(ends, np.minimum(ranges[:, 0] // size, count), 1)
    np.add.at(ends, np.minimum((ranges[:, 1] - 1) // size + 1, count), -1)
    return np.asarray(np.cumsum(ends[:-1]) > 0)


def _about(name: str, first: int) -> dict[str, str]:
    # one key: safetensors writes several in any order, and equal segments must be equal files
    return {"rows": f"{name} from {first}"}


def segment_reader(checkpoint: Path) -> Callable[[Mapping[str, Any], str], Arrays]:
    """Return a function that reads the rows of a checkpoint's buffers.

    It takes what :meth:`SavedBuffer.write` returned, and the name of the buffer in the state. It
    raises a CheckpointError that names the file if a segment is missing, damaged or of another
    buffer, and a ValueError if it is given no such list. Every segment is read once, so that a
    short list cannot fill the memory.
    """
    folder, seen = SegmentFolder(checkpoint), set[str]()

    def read(node: Mapping[str, Any], name: str) -> Arrays:
        digests = [digest for digest, _ in node["files"]]
        if len(set(digests)) < len(digests) or seen & set(digests):
            raise CheckpointError(f"checkpoint '{checkpoint}' lists a segment twice")
        seen.update(digests)
        return _rows(node, folder, name)

    return read


def _rows(node: Mapping[str, Any], folder: SegmentFolder, name: str) -> Arrays:
    rows, size, files = node["rows"], node["rows_per_file"], node["files"]
    if type(rows) is not int or type(size) is not int or rows < 0 or size < 1:
        raise ValueError(f"'{SEGMENTS_KEY}' has {rows!r} rows in files of {size!r}")
    if len(files) != max(-(-rows // size), 1):
        raise ValueError(f"{rows} rows in files of {size} do not make {len(files)} files")
    parts: list[Arrays] = []
    for k, (digest, n_bytes) in enumerate(files):
        part = folder.read(digest, n_bytes, _about(name, k * size))
        expected = min(size, rows - k * size)
        fits = all(array.ndim and len(array) == expected for array in part.values())
        if not fits or _kinds(part) != _kinds(parts[0] if parts else part):
            raise CheckpointError(
                f"segment '{folder.file(digest)}' must hold {expected} rows like those of the "
                "others"
            )
        parts.append(part)
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _kinds(part: Arrays) -> dict[str, Any]:
    return {key: (array.dtype, array.shape[1:]) for key, array in part.items()}
