"""How off-policy algorithms keep observations: as rows of one array, whatever their space is.

A replay buffer holds one array of observations. Those of a space that is not nested are its rows as
they are. Those of a ``Dict`` or a ``Tuple`` become rows of bytes, the leaves one behind the other,
so that images stay uint8 and numbers keep every bit, in any buffer.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlox.observations import ObservationRows
from rlox.spaces import is_nested, map_leaves

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
        if self._nested:
            self.shape: tuple[int, ...] = (sum(leaf.nbytes for leaf in self._one.values()),)
            """Of one row."""
            self.dtype = "uint8"
            """Of the rows."""
        else:
            self.shape = self._one.shape[1:] or (1,)
            self.dtype = str(self._one.dtype)

    def copy(self, obs: Any) -> Any:
        """Return a copy of (N, *shape) observations in the dtypes they are kept in."""
        return map_leaves(
            lambda leaf, one: np.array(leaf, one.dtype).reshape(-1, *one.shape[1:]), obs, self._one
        )

    def pack(self, obs: Any) -> npt.NDArray[Any]:
        """Return the rows (N, ...) of observations in any real dtypes."""
        if not self._nested:
            rows: npt.NDArray[Any] = np.asarray(obs).reshape(-1, *self.shape)
            return rows
        leaves = self._rows.stored(obs).values()
        return np.concatenate([leaf.reshape(len(leaf), -1).view(np.uint8) for leaf in leaves], 1)

    def unpack(self, rows: npt.NDArray[Any]) -> Any:
        """Return the observations (B, *shape) of rows, of a nested space a dict by leaf name."""
        if not self._nested:
            return rows.reshape(-1, *self._one.shape[1:])
        ends = np.cumsum([leaf.nbytes for leaf in self._one.values()])
        parts = zip(self._one.items(), np.split(rows, ends[:-1], axis=1), strict=True)
        return {
            name: np.ascontiguousarray(part).view(one.dtype).reshape(-1, *one.shape[1:])
            for (name, one), part in parts
        }
