"""Actions in replay buffers: discrete from 0, continuous in [-1, 1].

Networks, noise and replay buffers use one scale, whatever the env's bounds are.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlox.errors import SpaceError

__all__ = ["BoxActions", "DiscreteActions", "make_actions"]


class DiscreteActions:
    """Actions 0 … n-1 of a discrete space.

    Args:
        space: of one env's action.
    """

    shape = (1,)
    """Of one action in a replay buffer."""
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
        """Return the env's own numbers (N,) of actions (N,)."""
        return actions + self._start

    def to_rows(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return actions (N,) as :mod:`rlox.spaces.rows` has them."""
        return actions


class BoxActions:
    """Actions in [-1, 1] in each dimension, which stand for a box's bounds.

    Every dimension has a scale of its own: -1 is its lower bound, 1 its upper.

    Args:
        space: of one env's action; one-dimensional, real and bounded.
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
        """Return actions (N, act_dim) clipped to [-1, 1], whatever was added to them."""
        return _clip(actions, -1, 1)

    def to_env(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return actions (N, act_dim) in the env's units, within its bounds whatever rounding."""
        scaled = (self._center + self._half_range * actions).astype(self._space.dtype)
        return _clip(scaled, self._space.low, self._space.high)

    def to_rows(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return actions (N, act_dim) as :mod:`rlox.spaces.rows` has them."""
        return self.to_env(actions)

    def layer_data(self) -> dict[str, Any]:
        """Describe :meth:`to_env`; see :mod:`rlox.deployment.layers`."""
        return {"layer": "affine", "scale": self._half_range, "shift": self._center}


def _clip(values: npt.NDArray[Any], low: Any, high: Any) -> npt.NDArray[Any]:
    """Return ``np.clip`` of a few values, in a fraction of its time."""
    clipped: npt.NDArray[Any] = np.minimum(np.maximum(values, low), high)
    return clipped


def make_actions(space: spaces.Space[Any]) -> DiscreteActions | BoxActions:
    """Return how the actions of ``space`` are kept.

    Raises:
        SpaceError: they are neither discrete nor vectors of bounded real numbers.
    """
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(space)
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise SpaceError(f"actions must be Discrete or a one-dimensional Box, got {space}")
    if not np.issubdtype(space.dtype, np.floating):
        raise SpaceError(f"continuous actions must be real numbers, got {space}")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise SpaceError(
            f"continuous actions must be bounded, got {space}; bound them with "
            "gymnasium.wrappers.TransformAction"
        )
    return BoxActions(space)
