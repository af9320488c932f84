"""Array validation for the reference kernels."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def real(name: str, values: npt.ArrayLike) -> Array:
    """Return ``values`` as an array of real numbers of any dtype."""
    raw = np.asarray(values)
    if raw.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be real numbers, got dtype {raw.dtype}")
    return raw


def precision(values: npt.ArrayLike) -> type[np.floating[Any]]:
    """Return the dtype to compute in: that of ``values`` if it is float32, else float64."""
    return np.float32 if getattr(values, "dtype", None) == np.float32 else np.float64


def shaped(name: str, values: npt.ArrayLike, shape: tuple[int, ...]) -> Array:
    """Return real numbers of exactly this shape."""
    raw = real(name, values)
    if raw.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {raw.shape}")
    return raw


def vector(name: str, values: npt.ArrayLike) -> Array:
    """Return real numbers of one dimension."""
    raw = real(name, values)
    if raw.ndim != 1:
        raise ValueError(f"{name} must have 1 dimension, got {raw.ndim}")
    return raw


def integers(name: str, values: npt.ArrayLike) -> Array:
    """Return ``values`` as int64."""
    raw = real(name, values)
    if raw.size and raw.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {raw.dtype}")
    return raw.astype(np.int64)


def size(name: str, value: SupportsIndex) -> int:
    """Return a size of at least 1."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got bool")
    number = operator.index(value)
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")
    return number


def in_range(name: str, value: float, low: float, high: float) -> float:
    """Return a number within a closed range."""
    if not low <= value <= high:
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}], got {value}")
    return value


def write(results: Mapping[str, Array], out: Mapping[str, Any]) -> None:
    """Write results into the arrays of the same names, if all of them fit; else into none."""
    checked: list[Array] = []
    for name, result in results.items():
        array = out[name]
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} must be a NumPy array, got {type(array).__name__}")
        if array.dtype != result.dtype:
            raise TypeError(f"{name} must have dtype {result.dtype}, got {array.dtype}")
        if array.shape != result.shape:
            raise ValueError(f"{name} must have shape {result.shape}, got {array.shape}")
        if not array.flags.writeable:
            raise ValueError(f"{name} must be writeable")
        if any(np.shares_memory(array, other) for other in checked):
            raise ValueError(f"{name} must not share memory with another array to write into")
        checked.append(array)
    for name, result in results.items():
        out[name][...] = result


@dataclass(frozen=True)
class Rollout:
    """Arrays (T,) or (T, N), in the precision of the rewards."""

    rewards: Array
    values: Array
    terminated: Array
    truncated: Array
    final_values: Array
    last_value: Array
    """() or (N,)."""

    @classmethod
    def parse(
        cls,
        rewards: npt.ArrayLike,
        values: npt.ArrayLike,
        dones: npt.ArrayLike,
        last_value: npt.ArrayLike,
        truncated: npt.ArrayLike | None,
        final_values: npt.ArrayLike | None,
        *,
        last_name: str = "last_value",
    ) -> Rollout:
        """Return a rollout whose shapes are checked."""
        dtype, raw = precision(rewards), real("rewards", rewards)
        if raw.ndim not in (1, 2):
            raise ValueError(f"rewards must have 1 or 2 dimensions, got {raw.ndim}")
        if (truncated is None) != (final_values is None):
            raise ValueError(
                "truncated and final_values come together: a cut episode is bootstrapped from the "
                "value of its final observation"
            )
        shape = raw.shape
        none = np.zeros(shape, dtype)
        return cls(
            raw.astype(dtype),
            shaped("values", values, shape).astype(dtype),
            shaped("dones", dones, shape) != 0,
            shaped("truncated", none if truncated is None else truncated, shape) != 0,
            shaped("final_values", none if final_values is None else final_values, shape).astype(
                dtype
            ),
            shaped(last_name, last_value, shape[1:]).astype(dtype),
        )

    def successor(self, t: int | slice, following: Array) -> Array:
        """Return the value of the state after step t: ``following`` if the episode goes on."""
        following = np.where(self.truncated[t], self.final_values[t], following)
        return np.where(self.terminated[t], self.rewards.dtype.type(0), following)
