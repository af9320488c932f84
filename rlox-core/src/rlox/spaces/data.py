"""Spaces as plain data, and back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlox.errors import SpaceError
from rlox.spaces.nested import leaf_spaces

__all__ = ["NUMBERS", "count_numbers", "number_dtype", "space_from_data", "space_to_data"]

Space = gymnasium.Space[Any]

NUMBERS = re.compile("[<>|][biuf][0-9]{1,2}")
"""Dtypes of numbers as ``numpy.dtype.str`` spells them."""


def number_dtype(text: str) -> np.dtype[Any]:
    """Return the dtype of numbers that a text names; NumPy alone would parse other texts too.

    Raises:
        TypeError, ValueError: it names none.
    """
    if not NUMBERS.fullmatch(text):
        raise ValueError(f"the dtype {text!r} is no number's")
    return np.dtype(text)


def space_to_data(space: Space) -> dict[str, Any]:
    """Return a space as a dict of plain values and arrays.

    Raises:
        SpaceError: a leaf is of another kind than observations and actions may be.
    """
    if isinstance(space, spaces.Box):
        return {"kind": "box", "low": space.low, "high": space.high, "dtype": space.dtype.str}
    if isinstance(space, spaces.Discrete):
        data = {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
        return data | _other_than_int64(space)
    if isinstance(space, spaces.MultiDiscrete):
        data = {"kind": "multi_discrete", "nvec": space.nvec, "start": space.start}
        return data | _other_than_int64(space)
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi_binary", "shape": [int(size) for size in space.shape]}
    if isinstance(space, spaces.Dict):
        pairs = [[key, space_to_data(leaf)] for key, leaf in space.spaces.items()]
        return {"kind": "dict", "spaces": pairs}
    if isinstance(space, spaces.Tuple):
        return {"kind": "tuple", "spaces": [space_to_data(leaf) for leaf in space.spaces]}
    raise SpaceError(f"a space of this kind cannot be written down: {space}")


def _other_than_int64(space: Space) -> dict[str, Any]:
    return {} if space.dtype == np.int64 else {"dtype": np.dtype(space.dtype).str}


def space_from_data(data: Mapping[str, Any]) -> Space:
    """Return the space that :func:`space_to_data` described.

    Raises:
        LookupError, TypeError, ValueError: it is no such description.
    """
    kind = data["kind"]
    if kind == "box":
        dtype = number_dtype(data["dtype"])
        low, high = (_of_dtype(data[name], dtype) for name in ("low", "high"))
        return spaces.Box(low, high, low.shape, dtype.type)
    if kind == "discrete":
        space = spaces.Discrete(int(data["n"]), start=int(data["start"]))
        space.dtype = number_dtype(data.get("dtype", "<i8"))  # no argument before gymnasium 1.2
        return space
    if kind == "multi_discrete":
        dtype = number_dtype(data.get("dtype", "<i8"))
        nvec, start = (_of_dtype(data[name], dtype) for name in ("nvec", "start"))
        return spaces.MultiDiscrete(nvec, dtype=dtype.type, start=start)
    if kind == "multi_binary":
        return spaces.MultiBinary([int(size) for size in data["shape"]])
    if kind == "dict":
        return spaces.Dict({str(key): space_from_data(leaf) for key, leaf in data["spaces"]})
    if kind == "tuple":
        return spaces.Tuple([space_from_data(leaf) for leaf in data["spaces"]])
    raise ValueError(f"unknown space {kind!r}")


def _of_dtype(given: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an array that has the dtype; a cast could change its numbers.

    Raises:
        ValueError: it has another.
    """
    array: npt.NDArray[Any] = np.asarray(given)
    if array.dtype != dtype:
        raise ValueError(f"expected numbers of the dtype {dtype}, got {array.dtype}")
    return array


def count_numbers(space: Space) -> int:
    """Return how many numbers a value of the space holds."""
    return sum(math.prod(leaf.shape or ()) for leaf in leaf_spaces(space).values())
