"""Nested spaces as flat mappings from names to leaves.

The leaf ``space["camera"][0]`` of a nested space is called ``"camera.0"``, and a value of the space
is a dict with one array per leaf. A space that is not nested is its own only leaf, and its values
stay plain arrays: whoever has no nested space never meets a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
from gymnasium import spaces

from rlox.errors import SpaceError

__all__ = [
    "channels_first",
    "form_of",
    "is_nested",
    "join",
    "leaf_spaces",
    "map_leaves",
    "map_nested",
    "split",
]

Space = gymnasium.Space[Any]


def is_nested(space: Space) -> bool:
    """Return whether the space's values are dicts of leaves here."""
    return isinstance(space, (spaces.Dict, spaces.Tuple))


def channels_first(shape: tuple[int, ...]) -> bool:
    """Return whether an image's channels are its first dimension: of three the shorter end one."""
    return len(shape) == 3 and shape[0] < shape[2]


def leaf_spaces(space: Space) -> dict[str, Space]:
    """Return the leaves of a space by name; a space that is not nested is called ``""``.

    Raises:
        SpaceError: two leaves have one name, or a nested space has no leaf.
    """
    leaves: dict[str, Space] = {}
    for name, leaf in _walk(space, ""):
        if name in leaves:
            raise SpaceError(f"two leaves of {space} are called '{name}'; rename a key")
        leaves[name] = leaf
    if not leaves:
        raise SpaceError(f"{space} has no leaf")
    return leaves


def split(space: Space, value: Any) -> Any:
    """Return the leaves of a value of a nested space by name; other values as they are.

    Args:
        space: of the value, or of each of a batch of values that is nested as the space is.
        value: nested mappings and sequences, or already split.

    Raises:
        ValueError: the value is not nested as the space is.
    """
    if not is_nested(space):
        return value
    names = leaf_spaces(space)
    if isinstance(value, Mapping) and set(value) == set(names):
        return {name: value[name] for name in names}
    return dict(_walk_value(space, value, ""))


def join(space: Space, leaves: Any) -> Any:
    """Return the nested value that :func:`split` splits into ``leaves``."""
    return _join(space, leaves, "") if is_nested(space) else leaves


def form_of(value: Any) -> Any:
    """Return what an array, or a dict of arrays, shares with others that are as good.

    Raises:
        AttributeError: it is neither.
    """
    if value.__class__ is dict:
        return [(key, each.shape, each.dtype) for key, each in value.items()]
    return value.__class__, value.shape, value.dtype


def map_leaves(function: Callable[..., Any], value: Any, *others: Any) -> Any:
    """Apply a function to a plain value, or to each leaf of a split one.

    Args:
        function: takes one leaf of each value.
        value: plain, or a dict by leaf name.
        others: of the same form.
    """
    if not isinstance(value, dict):
        return function(value, *others)
    return {name: function(leaf, *(o[name] for o in others)) for name, leaf in value.items()}


def map_nested(function: Callable[..., Any], value: Any, *others: Any) -> Any:
    """Apply a function to each leaf of nested mappings and tuples, and return what is nested alike.

    Args:
        function: takes one leaf of each value.
        value: a leaf, or nested mappings and tuples of leaves.
        others: nested alike.
    """
    if isinstance(value, Mapping):
        return {k: map_nested(function, leaf, *(o[k] for o in others)) for k, leaf in value.items()}
    if isinstance(value, tuple):
        return tuple(map_nested(function, *leaves) for leaves in zip(value, *others, strict=True))
    return function(value, *others)


def _children(space: Space) -> Iterator[tuple[Any, Space]]:
    yield from space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)  # type: ignore[attr-defined]


def _path(prefix: str, key: Any) -> str:
    return f"{prefix}.{key}" if prefix else str(key)


def _walk(space: Space, prefix: str) -> Iterator[tuple[str, Space]]:
    if not is_nested(space):
        yield prefix, space
        return
    for key, child in _children(space):
        yield from _walk(child, _path(prefix, key))


def _walk_value(space: Space, value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if not is_nested(space):
        yield prefix, value
        return
    keys = [key for key, _ in _children(space)]
    kind = Mapping if isinstance(space, spaces.Dict) else (tuple, list)
    if kind is Mapping and isinstance(value, Mapping) and set(value) != set(keys):
        raise ValueError(f"expected the keys {keys}, got {list(value)}")
    if not isinstance(value, kind) or len(value) != len(keys):
        raise ValueError(f"expected a value nested as {space}, got {type(value).__name__}")
    for key, child in _children(space):
        yield from _walk_value(child, value[key], _path(prefix, key))


def _join(space: Space, leaves: Mapping[str, Any], prefix: str) -> Any:
    if not is_nested(space):
        return leaves[prefix]
    joined = {key: _join(child, leaves, _path(prefix, key)) for key, child in _children(space)}
    return joined if isinstance(space, spaces.Dict) else tuple(joined.values())
