"""Arrays in memory that two processes share, without names and without pickle.

The memory is a file that no folder lists, so nothing is left of it however its processes end.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Arena"]

ALIGNMENT = 64
Arrays = Mapping[str, npt.NDArray[Any]]


class Arena:
    """A shared file that grows with what is written into it.

    One side writes and says so, the other then reads; they take turns.

    Args:
        file: descriptor of a file that both processes have open.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        if not os.fstat(file).st_size:
            os.ftruncate(file, mmap.PAGESIZE)
        self._map = mmap.mmap(file, os.fstat(file).st_size)
        self._beats: npt.NDArray[np.uint64] = np.ndarray((), np.uint64, self._map)

    @property
    def beats(self) -> int:
        """How often the other side has said that it goes on."""
        return int(self._beats)

    def beat(self) -> None:
        """Say that this side goes on."""
        self._beats += np.uint64(1)

    def write(self, arrays: Arrays) -> bytes:
        """Copy arrays into the file and return the table that :meth:`read` takes.

        Raises:
            OSError: there is no room for them.
        """
        table, offset = [], ALIGNMENT
        for name, array in arrays.items():
            table.append((name, array.dtype.str, array.shape, offset))
            offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        self._grow(offset)
        for (_, _, _, start), array in zip(table, arrays.values(), strict=True):
            if array.nbytes:
                place = np.ndarray(array.shape, array.dtype, self._map, start)
                place[...] = array
        return json.dumps(table).encode()

    def read(self, table: bytes) -> dict[str, npt.NDArray[Any]]:
        """Return copies of the arrays that were written."""
        rows = json.loads(table)
        arrays = {}
        for name, kind, shape, offset in rows:
            dtype = np.dtype(kind)
            size = int(np.prod(shape)) * dtype.itemsize
            self._map_up_to(offset + size)
            arrays[name] = np.empty(tuple(shape), dtype)
            if size:
                arrays[name][...] = np.ndarray(tuple(shape), dtype, self._map, offset)
        return arrays

    def _grow(self, size: int) -> None:
        if size > os.fstat(self._file).st_size:
            # beyond what is needed now, so that it rarely grows
            larger = -(-size * 5 // 4 // mmap.PAGESIZE) * mmap.PAGESIZE
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, 0, larger)
            else:  # a full disk is then noticed when a page is written
                os.ftruncate(self._file, larger)
        self._map_up_to(size)

    def _map_up_to(self, size: int) -> None:
        if len(self._map) < size:
            self._map = mmap.mmap(self._file, os.fstat(self._file).st_size)
