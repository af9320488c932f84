"""State trees of checkpoints, apart from their arrays and buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlox.errors import CheckpointError
from rlox.training.segments import SEGMENTS_KEY, Arrays, SavedBuffer

TENSOR_KEY = "$tensor"
REST_KEY = "$rest"

WriteBuffer = Callable[[SavedBuffer, str], dict[str, Any]]
ReadBuffer = Callable[[Mapping[str, Any], str], Arrays]


def pack(
    value: Any,
    path: str,
    tensors: Arrays,
    write: WriteBuffer | None = None,
) -> Any:
    """Return a state as values for JSON.

    Args:
        value: the state.
        path: where it is in the whole state.
        tensors: gets the arrays, under their paths.
        write: writes the segments of a buffer, given its path, and returns their list.

    Raises:
        TypeError: a value is no array of real numbers and no plain value.
    """
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            raise TypeError(f"state at '{path}' must be of a real dtype, got {value.dtype}")
        name = path if path not in tensors else f"{path}#{len(tensors)}"  # "a.b" and "a" -> "b"
        tensors[name] = np.asarray(value, order="C")
        return {TENSOR_KEY: name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, SavedBuffer) and write is not None:
        listed = write(value, path)
        return {SEGMENTS_KEY: listed, REST_KEY: pack(value.rest(), path, tensors)}
    if isinstance(value, Mapping):
        if {TENSOR_KEY, SEGMENTS_KEY} & value.keys() or not all(isinstance(k, str) for k in value):
            raise TypeError(f"the keys of the state at '{path}' must be text, not '{TENSOR_KEY}'")
        return {k: pack(v, f"{path}.{k}" if path else k, tensors, write) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [pack(v, f"{path}.{i}", tensors, write) for i, v in enumerate(value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"state at '{path}' must be an array or a plain value, got {type(value)}")


def require_like(saved: Any, fresh: Any, path: str = "algorithm") -> None:
    """Refuse a saved state whose arrays and counts are not of the kinds that a fresh one has.

    Args:
        saved: what :func:`unpack` returned.
        fresh: the state of a new object of the same kind; what it lacks is not looked at.
        path: where both are in the whole state.

    Raises:
        CheckpointError: an array is of another dtype, or a count negative or no integer.
    """
    if isinstance(fresh, Mapping) and isinstance(saved, Mapping):
        for name in fresh.keys() & saved.keys():
            require_like(saved[name], fresh[name], f"{path}.{name}")
    elif isinstance(fresh, np.ndarray) and isinstance(saved, np.ndarray):
        if saved.dtype != fresh.dtype:
            raise CheckpointError(f"'{path}' is of dtype {saved.dtype}, expected {fresh.dtype}")
    elif type(fresh) is int and fresh >= 0 and (type(saved) is not int or saved < 0):
        raise CheckpointError(f"'{path}' must be an integer of at least 0, got {saved!r}")


def unpack(value: Any, tensors: Arrays, read: ReadBuffer | None = None, path: str = "") -> Any:
    """Return the state that :func:`pack` was given; a buffer as the dict of its state.

    Args:
        value: what it returned.
        tensors: the arrays.
        read: reads the segments of a list, given the buffer's path.
        path: where ``value`` is in the whole state.
    """
    if isinstance(value, dict):
        if set(value) == {TENSOR_KEY}:
            return tensors[value[TENSOR_KEY]]
        if read is not None and set(value) == {SEGMENTS_KEY, REST_KEY}:
            rest = unpack(value[REST_KEY], tensors)
            return {**rest, **read(value[SEGMENTS_KEY], path)}
        return {k: unpack(v, tensors, read, f"{path}.{k}" if path else k) for k, v in value.items()}
    if isinstance(value, list):
        return [unpack(v, tensors, read, f"{path}.{i}") for i, v in enumerate(value)]
    return value
