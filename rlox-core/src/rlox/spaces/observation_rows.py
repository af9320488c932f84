"""Observation rows: arrays by leaf, in few dtypes.

Observations of a ``Box``, a ``Discrete``, a ``MultiDiscrete`` or a ``MultiBinary`` are one array,
those of a ``Dict`` or a ``Tuple`` a dict with one array per leaf; see :mod:`rlox.spaces.nested`.
uint8 stays uint8, the whole numbers of ``Discrete`` and ``MultiDiscrete`` are int64, all else is
float32.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlox.errors import EnvError, SpaceError
from rlox.spaces.nested import is_nested, leaf_spaces, map_leaves, split

__all__ = ["ObservationRows", "require_finite"]


class ObservationRows:
    """The arrays of one observation space.

    Args:
        space: of one env's observation.

    Raises:
        SpaceError: a leaf has no arrays of one shape, or none holds a number.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.space = space
        leaves = leaf_spaces(space)
        dtypes = {name: _dtype(leaf) for name, leaf in leaves.items()}
        shapes = {name: leaf.shape for name, leaf in leaves.items()}
        if not any(math.prod(shape or ()) for shape in shapes.values()):
            raise SpaceError(f"observations must hold numbers, got {space}")
        nested = is_nested(space)
        self._dtypes: Any = dtypes if nested else dtypes[""]
        self._shapes: Any = shapes if nested else shapes[""]

    def empty(self, *leading: int) -> Any:
        """Return uninitialised arrays of shape ``(*leading, *shape)``."""
        return map_leaves(
            lambda dtype, shape: np.empty((*leading, *shape), dtype), self._dtypes, self._shapes
        )

    def stored(self, obs: Any) -> Any:
        """Return observations in the dtypes they are kept in, contiguous."""
        return map_leaves(np.ascontiguousarray, obs, self._dtypes)

    def batch(self, obs: Any) -> tuple[Any, bool]:
        """Return what a user has as a batch of B observations, and whether it was a single one.

        Args:
            obs: one observation, or B of them as arrays (B, *shape), nested as the space is.

        Raises:
            ValueError: the shape is neither.
        """
        leaves = map_leaves(np.asarray, split(self.space, obs))
        singles = map_leaves(_is_single, leaves, self._shapes)
        names = singles if isinstance(singles, dict) else {"": singles}
        single = next(iter(names.values()))
        if any(other != single for other in names.values()):
            raise ValueError(f"some leaves of obs are one observation, others a batch: {names}")
        if single:
            leaves = map_leaves(lambda leaf: leaf[None], leaves)
        return map_leaves(np.array, leaves, self._dtypes), single


def require_finite(obs: Any, *, env_axis: int = 0) -> None:
    """Refuse observations that hold a NaN or an infinity, which would spread through the networks.

    Args:
        obs: arrays by leaf, of N envs.
        env_axis: which of their axes counts the envs: 1 of (T, N, *shape).

    Raises:
        EnvError: one is not finite; the text names its env.
    """

    def check(leaf: npt.NDArray[Any]) -> None:
        if leaf.dtype.kind != "f":
            return
        finite = np.isfinite(leaf)
        if not finite.all():
            i = np.argwhere(~finite)[0][env_axis]
            raise EnvError(f"env {i} returned an observation that is not finite")

    map_leaves(check, obs)


def _dtype(space: gymnasium.Space[Any]) -> type[np.generic]:
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return np.int64
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return np.uint8 if space.dtype == np.uint8 else np.float32
    raise SpaceError(
        "observations must be Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of "
        f"these, got {space}; wrap the env with gymnasium.wrappers.TransformObservation"
    )


def _is_single(array: npt.NDArray[Any], shape: tuple[int, ...]) -> bool:
    if array.shape == shape:
        return True
    if array.shape[1:] != shape or not array.ndim:
        raise ValueError(
            f"obs must have shape {shape} or (B, {', '.join(map(str, shape))}), got {array.shape}"
        )
    return False
