"""Spaces and arguments as JSON, and the layout of their arrays in messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from rlox.errors import EnvError, SpaceError
from rlox.spaces.data import count_numbers, number_dtype, space_from_data, space_to_data
from rlox.spaces.rows import is_nested, leaf_spaces

from rlox_distributed._transport import StepCodec

Space = gymnasium.Space[Any]

MAX_NUMBERS = 1 << 28
"""Largest honest number of elements of one observation or action."""


def space_to_json(space: Space) -> str:
    """Return a space as JSON text.

    Raises:
        SpaceError: it is or contains a space of an unsupported kind.
    """
    return json.dumps(space_to_data(space), default=_array_to_json)


def arguments_to_json(arguments: Mapping[str, Any]) -> str:
    """Return an env's arguments as JSON text, equal for equal arguments.

    Raises:
        EnvError: one is not a JSON value.
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
"""Exceptions that a hostile text may raise."""


def space_from_json(text: str) -> Space:
    """Return the space that :func:`space_to_json` described.

    Raises:
        SpaceError: the text does not describe a space.
    """
    try:
        space = space_from_data(json.loads(text, object_hook=_array_from_json))
        numbers = count_numbers(space)
        if numbers > MAX_NUMBERS:
            raise ValueError(f"it has {numbers} numbers, at most {MAX_NUMBERS} are accepted")
        return space
    except _NO_SPACE as error:
        raise SpaceError(f"the worker describes no space: {error!r}") from None


def _array_to_json(value: Any) -> dict[str, Any]:
    """Return the bits of an array, because JSON cannot represent all numbers."""
    array = np.asarray(value)
    data = base64.b64encode(array.tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": array.shape, "data": data}


def _array_from_json(given: dict[str, Any]) -> Any:
    """Return the array that a dict describes, or else the dict."""
    if set(given) != {"dtype", "shape", "data"}:
        return given
    data = np.frombuffer(base64.b64decode(given["data"]), number_dtype(given["dtype"]))
    return data.reshape(tuple(int(n) for n in given["shape"]))


def leaves_of(space: Space) -> tuple[bool, list[tuple[str, np.dtype[Any], tuple[int, ...]]]]:
    """Return whether a space is nested, and the name, dtype and shape of each leaf."""
    leaves = leaf_spaces(space).items()
    return is_nested(space), [
        (name, np.dtype(leaf.dtype), tuple(leaf.shape or ())) for name, leaf in leaves
    ]


def codec_of(observations: Space, actions: Space, n_envs: int) -> StepCodec:
    """Return the conversion between the arrays of N envs and messages."""
    return StepCodec(leaves_of(observations), leaves_of(actions), n_envs)
