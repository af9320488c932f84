"""Actions and observations in the form that replay buffers store.

Discrete actions count from 0 and continuous ones lie in [-1, 1]: networks, noise and replay
buffers use one scale, whatever the env's bounds are.

A replay buffer holds one array of observations. Observations of a space that is not nested are
stored unchanged. The leaves of a ``Dict`` or a ``Tuple`` are concatenated in a row: of their dtype
if they share one, else of bytes, so that images stay uint8 and numbers keep every bit.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlox.errors import SpaceError
from rlox.spaces.rows import ObservationRows, is_bounded, is_nested, map_leaves


class DiscreteActions:
    """Actions 0 … n-1 of a discrete space.

    Args:
        space: space of one env's action.
    """

    shape = (1,)
    """Shape of one action in a replay buffer."""
    dtype: Literal["float32", "int64"] = "int64"

    def __init__(self, space: spaces.Discrete) -> None:
        self.count = int(space.n)
        self._start = space.start

    def random(self, rng: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
        """Return n actions (n,), uniform."""
        return rng.integers(self.count, size=n)

    def bounded(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the actions (N,)."""
        return actions

    def to_env(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the env's own values (N,) for actions (N,)."""
        return actions + self._start

    def to_rows(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return actions (N,) in the form of :mod:`rlox.spaces.rows`."""
        return actions


class BoxActions:
    """Actions in [-1, 1] in each dimension, scaled to the bounds of a ``Box``.

    Every dimension has its own scale: -1 is its lower bound, 1 its upper.

    Args:
        space: space of one env's action; one-dimensional, real and bounded.
    """

    dtype: Literal["float32", "int64"] = "float32"

    def __init__(self, space: spaces.Box) -> None:
        self.shape = space.shape
        self._space = space
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._center, self._half_range = (low + high) / 2, (high - low) / 2

    def random(self, rng: np.random.Generator, n: int) -> npt.NDArray[np.float32]:
        """Return n actions (n, act_dim), uniform."""
        return rng.uniform(-1, 1, (n, *self.shape)).astype(np.float32)

    def bounded(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return actions (N, act_dim) clipped to [-1, 1], for example after noise."""
        return _clip(actions, -1, 1)

    def to_env(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return actions (N, act_dim) in the env's units, within its bounds despite rounding."""
        scaled = (self._center + self._half_range * actions).astype(self._space.dtype)
        return _clip(scaled, self._space.low, self._space.high)

    def to_rows(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return actions (N, act_dim) in the form of :mod:`rlox.spaces.rows`."""
        return self.to_env(actions)

    def layer_data(self) -> dict[str, Any]:
        """Describe :meth:`to_env`; see :mod:`rlox.deployment.layers`."""
        return {"layer": "affine", "scale": self._half_range, "shift": self._center}


def _clip(values: npt.NDArray[Any], low: Any, high: Any) -> npt.NDArray[Any]:
    """Return ``np.clip`` of a small array, in a fraction of its time."""
    clipped: npt.NDArray[Any] = np.minimum(np.maximum(values, low), high)
    return clipped


def make_actions(space: spaces.Space[Any]) -> DiscreteActions | BoxActions:
    """Return the codec for the actions of ``space``.

    Raises:
        SpaceError: the actions are neither discrete nor vectors of bounded real numbers.
    """
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(space)
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise SpaceError(f"actions must be Discrete or a one-dimensional Box, got {space}")
    if not np.issubdtype(space.dtype, np.floating):
        raise SpaceError(f"continuous actions must be real numbers, got {space}")
    if not is_bounded(space.low, space.high):
        raise SpaceError(
            f"continuous actions must be bounded, got {space}; bound them with "
            "gymnasium.wrappers.TransformAction"
        )
    return BoxActions(space)


class ReplayObservations:
    """Converts between the envs' observations and a buffer's rows.

    Args:
        space: space of one env's observation.

    Raises:
        SpaceError: a leaf of the space has no fixed shape.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self._rows = ObservationRows(space)
        self._nested = is_nested(space)
        self._one = self._rows.empty(1)
        if not self._nested:
            self.shape: tuple[int, ...] = self._one.shape[1:] or (1,)
            """Shape of one row."""
            self.dtype = str(self._one.dtype)
            """Dtype of the rows."""
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
        """Return a copy of (N, *shape) observations in their stored dtypes."""
        return map_leaves(_copy, obs, self._one) if self._nested else _copy(obs, self._one)

    def pack(self, obs: Any) -> npt.NDArray[Any]:
        """Return the rows (N, ...) of observations in any real dtypes."""
        if not self._nested:
            rows: npt.NDArray[Any] = np.asarray(obs).reshape(-1, *self.shape)
            return rows
        return np.concatenate([self._columns(leaf) for leaf in self._rows.stored(obs).values()], 1)

    def _columns(self, leaf: npt.NDArray[Any]) -> npt.NDArray[Any]:
        # -1 cannot stand for a size if the leaf is empty
        return leaf.reshape(len(leaf), math.prod(leaf.shape[1:])).view(self.dtype)

    def unpack(self, rows: npt.NDArray[Any]) -> Any:
        """Return the observations (B, *shape) of rows; for a nested space a dict by leaf name."""
        if not self._nested:
            return rows.reshape(-1, *self._one.shape[1:])
        parts = zip(self._one.items(), np.split(rows, self._ends[:-1], axis=1), strict=True)
        return {
            name: np.ascontiguousarray(part).view(one.dtype).reshape(len(rows), *one.shape[1:])
            for (name, one), part in parts
        }


def _copy(leaf: npt.NDArray[Any], one: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.array(leaf, one.dtype).reshape(len(leaf), *one.shape[1:])
