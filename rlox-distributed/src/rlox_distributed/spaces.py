"""Spaces and arguments as JSON, arrays as raw bytes; nothing is unpickled."""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.errors import EnvError, SpaceError
from rlox.spaces.nested import is_nested, leaf_spaces

__all__ = ["Leaves", "arguments_to_json", "space_from_json", "space_to_json"]

Space = gymnasium.Space[Any]

NUMBERS = re.compile("[<>|][biuf][0-9]{1,2}")
"""Dtypes of numbers as ``numpy.dtype.str`` spells them."""

MAX_NUMBERS = 1 << 28
"""Numbers of one observation or action; more are no honest space."""


def space_to_json(space: Space) -> str:
    """Return a space as JSON text.

    Raises:
        SpaceError: it is, or holds, a space of another kind.
    """
    return json.dumps(_describe(space))


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
        space = _build(json.loads(text))
        numbers = sum(math.prod(leaf.shape or ()) for leaf in leaf_spaces(space).values())
        if numbers > MAX_NUMBERS:
            raise ValueError(f"it has {numbers} numbers, at most {MAX_NUMBERS} are taken")
        return space
    except _NO_SPACE as error:
        raise SpaceError(f"the worker describes no space: {error!r}") from None


def _describe(space: Space) -> dict[str, Any]:
    if isinstance(space, spaces.Dict):
        return {"dict": [[key, _describe(part)] for key, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"tuple": [_describe(part) for part in space.spaces]}
    if isinstance(space, spaces.Box):
        bounds = [base64.b64encode(bound.tobytes()).decode() for bound in (space.low, space.high)]
        return {"box": bounds, "shape": space.shape, "dtype": space.dtype.str}
    if isinstance(space, spaces.Discrete):
        return {"discrete": int(space.n), "start": int(space.start), "dtype": space.dtype.str}
    if isinstance(space, spaces.MultiDiscrete):
        numbers = {"multi_discrete": space.nvec.tolist(), "start": space.start.tolist()}
        return {**numbers, "dtype": space.dtype.str}
    if isinstance(space, spaces.MultiBinary):
        return {"multi_binary": space.shape}
    raise SpaceError(f"a worker cannot serve the space {space}")


def _build(given: Any) -> Space:
    if "dict" in given:
        return spaces.Dict({str(key): _build(part) for key, part in given["dict"]})
    if "tuple" in given:
        return spaces.Tuple([_build(part) for part in given["tuple"]])
    if "multi_binary" in given:
        return spaces.MultiBinary([int(n) for n in given["multi_binary"]])
    if not NUMBERS.fullmatch(given["dtype"]):  # NumPy would parse other texts
        raise ValueError(f"the dtype {given['dtype']!r} is no number's")
    dtype = np.dtype(given["dtype"])
    if "discrete" in given:
        space = spaces.Discrete(int(given["discrete"]), start=int(given["start"]))
        space.dtype = dtype  # no argument before gymnasium 1.2
        return space
    if "multi_discrete" in given:
        start = np.array(given["start"])
        return spaces.MultiDiscrete(np.array(given["multi_discrete"]), dtype=dtype, start=start)
    shape = tuple(int(n) for n in given["shape"])
    if math.prod(shape) > MAX_NUMBERS:
        raise ValueError(f"its shape is {shape}")
    low, high = (
        np.frombuffer(base64.b64decode(bound), dtype).reshape(shape) for bound in given["box"]
    )
    return spaces.Box(low, high, shape, dtype.type)


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
            array = np.frombuffer(part, _little(dtype)).reshape((count, *shape))
            leaves[name] = array.astype(dtype)
        return leaves if self._nested else leaves[""]


def _row_bytes(leaf: Space) -> int:
    return math.prod(leaf.shape or ()) * np.dtype(leaf.dtype).itemsize


def _little(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype as it travels; ``newbyteorder`` costs a microsecond."""
    return dtype if sys.byteorder == "little" and dtype.isnative else dtype.newbyteorder("<")
