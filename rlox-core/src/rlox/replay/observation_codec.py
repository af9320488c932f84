"""Observations in replay buffers: rows of one array for any space.

A replay buffer holds one array of observations. Those of a space that is not nested are its rows as
they are. The leaves of a ``Dict`` or a ``Tuple`` lie one behind the other in a row: of their dtype
if they share one, else of bytes, so that images stay uint8 and numbers keep every bit.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlox.spaces.nested import is_nested, map_leaves
from rlox.spaces.rows import ObservationRows

__all__ = ["ReplayObservations"]


class ReplayObservations:
    """From observations as envs return them to a buffer's rows, and back.

    Args:
        space: of one env's observation.

    Raises:
        SpaceError: a leaf of the space has no arrays of one shape.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self._rows = ObservationRows(space)
        self._nested = is_nested(space)
        self._one = self._rows.empty(1)
        if not self._nested:
            self.shape: tuple[int, ...] = self._one.shape[1:] or (1,)
            """Of one row."""
            self.dtype = str(self._one.dtype)
            """Of the rows."""
            return
        dtypes = {str(leaf.dtype) for leaf in self._one.values()}
        self.dtype = dtypes.pop() if len(dtypes) == 1 else "uint8"
        sizes = [leaf.nbytes // np.dtype(self.dtype).itemsize for leaf in self._one.values()]
        self._ends = np.cumsum(sizes).tolist()
        self.shape = (self._ends[-1],)

    def part(self, name: str) -> slice:
        """Return the columns of a row that hold the leaf ``name`` of a nested space.

        Raises:
            KeyError: there is no such leaf.
        """
        index = dict(zip(self._one, range(len(self._one)), strict=True))[name]
        return slice([0, *self._ends][index], self._ends[index])

    def copy(self, obs: Any) -> Any:
        """Return a copy of (N, *shape) observations in the dtypes they are kept in."""
        return map_leaves(_copy, obs, self._one)

    def pack(self, obs: Any) -> npt.NDArray[Any]:
        """Return the rows (N, ...) of observations in any real dtypes."""
        if not self._nested:
            rows: npt.NDArray[Any] = np.asarray(obs).reshape(-1, *self.shape)
            return rows
        return np.concatenate([self._columns(leaf) for leaf in self._rows.stored(obs).values()], 1)

    def _columns(self, leaf: npt.NDArray[Any]) -> npt.NDArray[Any]:
        # -1 stands for no size if the leaf has no numbers
        return leaf.reshape(len(leaf), math.prod(leaf.shape[1:])).view(self.dtype)

    def unpack(self, rows: npt.NDArray[Any]) -> Any:
        """Return the observations (B, *shape) of rows, of a nested space a dict by leaf name."""
        if not self._nested:
            return rows.reshape(-1, *self._one.shape[1:])
        parts = zip(self._one.items(), np.split(rows, self._ends[:-1], axis=1), strict=True)
        return {
            name: np.ascontiguousarray(part).view(one.dtype).reshape(len(rows), *one.shape[1:])
            for (name, one), part in parts
        }


def _copy(leaf: npt.NDArray[Any], one: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.array(leaf, one.dtype).reshape(len(leaf), *one.shape[1:])
