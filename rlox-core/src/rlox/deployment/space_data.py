"""Spaces as plain data, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlox.errors import SpaceError
from rlox.spaces import leaf_spaces

__all__ = ["count_numbers", "space_from_data", "space_to_data"]

Space = gymnasium.Space[Any]


def space_to_data(space: Space) -> dict[str, Any]:
    """Return a space as a dict of plain values and arrays.

    Raises:
        SpaceError: a leaf is of another kind than observations and actions may be.
    """
    if isinstance(space, spaces.Box):
        return {"kind": "box", "low": space.low, "high": space.high, "dtype": space.dtype.str}
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "multi_discrete", "nvec": space.nvec, "start": space.start}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi_binary", "shape": [int(size) for size in space.shape]}
    if isinstance(space, spaces.Dict):
        pairs = [[key, space_to_data(leaf)] for key, leaf in space.spaces.items()]
        return {"kind": "dict", "spaces": pairs}
    if isinstance(space, spaces.Tuple):
        return {"kind": "tuple", "spaces": [space_to_data(leaf) for leaf in space.spaces]}
    raise SpaceError(f"a policy file cannot hold the space {space}")


def space_from_data(data: Mapping[str, Any]) -> Space:
    """Return the space that :func:`space_to_data` described.

    Raises:
        LookupError, TypeError, ValueError: it is no such description.
    """
    kind = data["kind"]
    if kind == "box":
        dtype = np.dtype(data["dtype"])
        if dtype.kind not in "biuf":
            raise ValueError(f"a box of {dtype}")
        low, high = (np.asarray(data[name], dtype) for name in ("low", "high"))
        return spaces.Box(low, high, low.shape, dtype.type)
    if kind == "discrete":
        return spaces.Discrete(int(data["n"]), start=int(data["start"]))
    if kind == "multi_discrete":
        return spaces.MultiDiscrete(np.asarray(data["nvec"]), start=np.asarray(data["start"]))
    if kind == "multi_binary":
        return spaces.MultiBinary([int(size) for size in data["shape"]])
    if kind == "dict":
        return spaces.Dict({str(key): space_from_data(leaf) for key, leaf in data["spaces"]})
    if kind == "tuple":
        return spaces.Tuple([space_from_data(leaf) for leaf in data["spaces"]])
    raise ValueError(f"unknown space {kind!r}")


def count_numbers(space: Space) -> int:
    """Return how many numbers a value of the space holds."""
    return sum(math.prod(leaf.shape or ()) for leaf in leaf_spaces(space).values())
