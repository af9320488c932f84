"""Spaces and arguments as JSON, arrays as raw bytes; nothing is unpickled."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from rlox.errors import EnvError, SpaceError
from rlox.spaces.data import count_numbers, number_dtype, space_from_data, space_to_data
from rlox.spaces.nested import is_nested, leaf_spaces

__all__ = ["Leaves", "arguments_to_json", "space_from_json", "space_to_json"]

Space = gymnasium.Space[Any]

MAX_NUMBERS = 1 << 28
"""Numbers of one observation or action; more are no honest space."""


def space_to_json(space: Space) -> str:
    """Return a space as JSON text.

    Raises:
        SpaceError: it is, or holds, a space of another kind.
    """
    return json.dumps(space_to_data(space), default=_array_to_json)


def arguments_to_json(arguments: Mapping[str, Any]) -> str:
    """Return an env's arguments as JSON text, the same for equal ones.

    Raises:
        EnvError: one is no JSON value.
    """
    try:
        return json.dumps(dict(arguments), sort_keys=True)
    except (TypeError, ValueError) as error:
        raise EnvError(
            f"env_kwargs of workers must be JSON values, got {dict(arguments)}: {error}"
        ) from None


_NO_SPACE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a hostile text may raise."""


def space_from_json(text: str) -> Space:
    """Return the space that :func:`space_to_json` described.

    Raises:
        SpaceError: the text describes none.
    """
    try:
        space = space_from_data(json.loads(text, object_hook=_array_from_json))
        numbers = count_numbers(space)
        if numbers > MAX_NUMBERS:
            raise ValueError(f"it has {numbers} numbers, at most {MAX_NUMBERS} are taken")
        return space
    except _NO_SPACE as error:
        raise SpaceError(f"the worker describes no space: {error!r}") from None


def _array_to_json(value: Any) -> dict[str, Any]:
    """Return the bits of an array, as JSON has no numbers for all of them."""
    array = np.asarray(value)
    data = base64.b64encode(array.tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": array.shape, "data": data}


def _array_from_json(given: dict[str, Any]) -> Any:
    """Return the array if it is one, else the dict."""
    if set(given) != {"dtype", "shape", "data"}:
        return given
    data = np.frombuffer(base64.b64decode(given["data"]), number_dtype(given["dtype"]))
    return data.reshape(tuple(int(n) for n in given["shape"]))


class Leaves:
    """The arrays of N values of a space, as raw bytes in the order of its leaves.

    Args:
        space: of one value.
        n_envs: N.
    """

    def __init__(self, space: Space, n_envs: int) -> None:
        self._nested = is_nested(space)
        self._n_envs = n_envs
        self._leaves = [
            (name, np.dtype(leaf.dtype), tuple(leaf.shape or ()), _row_bytes(leaf))
            for name, leaf in leaf_spaces(space).items()
        ]

    @property
    def size(self) -> int:
        """Bytes of N values."""
        return self._n_envs * sum(row_bytes for *_, row_bytes in self._leaves)

    def to_bytes(self, value: Any) -> list[bytes]:
        """Return the arrays of some values, a dict by leaf name if the space is nested."""
        leaves = value if self._nested else {"": value}
        return [
            np.asarray(leaves[name], dtype).astype(_little(dtype), copy=False).tobytes()
            for name, dtype, _, _ in self._leaves
        ]

    def from_bytes(self, parts: Sequence[bytes], rows: int | None = None) -> Any:
        """Return the arrays, to be written to.

        Args:
            parts: see :meth:`to_bytes`.
            rows: number of values; ``None``: N.

        Raises:
            ValueError: the bytes are not as many.
        """
        count = self._n_envs if rows is None else rows
        if len(parts) != len(self._leaves):
            raise ValueError(f"expected {len(self._leaves)} arrays, got {len(parts)}")
        leaves: dict[str, npt.NDArray[Any]] = {}
        for part, (name, dtype, shape, row_bytes) in zip(parts, self._leaves, strict=True):
            if len(part) != count * row_bytes:
                raise ValueError(f"expected {count * row_bytes} bytes of '{name}', got {len(part)}")
            array = np.ndarray((count, *shape), _little(dtype), bytearray(part))
            leaves[name] = array.astype(dtype, copy=False)
        return leaves if self._nested else leaves[""]


def _row_bytes(leaf: Space) -> int:
    return math.prod(leaf.shape or ()) * np.dtype(leaf.dtype).itemsize


def _little(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype as it travels; ``newbyteorder`` costs a microsecond."""
    return dtype if sys.byteorder == "little" and dtype.isnative else dtype.newbyteorder("<")
