"""Observations and actions as JSON."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlox.spaces import MASK_KEY

__all__ = ["observation_from_json", "read_json", "to_json"]


def read_json(body: bytes) -> dict[str, Any]:
    """Return the object in a request's body.

    Raises:
        ValueError: it is no object, no JSON, or holds NaN or an infinity, which JSON has not.
    """

    def refuse(name: str) -> None:
        raise ValueError(f"expected finite numbers, got {name}")

    try:
        found = json.loads(body, parse_constant=refuse)
    except RecursionError:
        raise ValueError("the request is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"a request must be a JSON object, got {type(found).__name__}")
    return found


def observation_from_json(space: gymnasium.Space[Any], value: Any, name: str = "obs") -> Any:
    """Return an observation, or a batch of them, from lists.

    Args:
        space: of one observation; of a Dict each entry, and of a Tuple each place, is converted.
        value: from JSON.
        name: of the value, for errors.

    Raises:
        ValueError: it has another structure, or a number that the space cannot have.
    """
    if isinstance(space, spaces.Dict):
        wanted, found = (
            set(space.spaces),
            set(value) - {MASK_KEY} if isinstance(value, dict) else None,
        )
        if found != wanted:
            raise ValueError(f"{name} must be an object with {', '.join(sorted(wanted))}")
        nested = {
            key: observation_from_json(leaf, value[key], f"{name}.{key}")
            for key, leaf in space.spaces.items()
        }
        return nested | {key: value[key] for key in (MASK_KEY,) if key in value}
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, list) or len(value) != len(space.spaces):
            raise ValueError(f"{name} must be a list of {len(space.spaces)} parts")
        return tuple(
            observation_from_json(leaf, part, f"{name}.{i}")
            for i, (leaf, part) in enumerate(zip(space.spaces, value, strict=True))
        )
    return _leaf(space, value, name)


def to_json(value: Any) -> Any:
    """Return actions, nested as their space is, as values of JSON."""
    if isinstance(value, dict):
        return {key: to_json(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return [to_json(part) for part in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _leaf(space: gymnasium.Space[Any], value: Any, name: str) -> npt.NDArray[Any]:
    array = np.asarray(value)  # raises ValueError for ragged lists
    if array.dtype.kind not in "biuf" or not array.size:
        raise ValueError(f"{name} must hold numbers, got {_shown(value)}")
    dtype = np.dtype(space.dtype)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            array = array.astype(dtype)
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must hold finite {dtype} numbers")
        return array
    low, high = _bounds(space, dtype)
    if array.dtype.kind == "f" or (array < low).any() or (array > high).any():
        raise ValueError(f"{name} must hold whole numbers of the space {space}")
    return array.astype(dtype)


def _bounds(space: gymnasium.Space[Any], dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the least and greatest numbers of a space of whole numbers."""
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    limits = np.iinfo(dtype)
    return limits.min, limits.max


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
