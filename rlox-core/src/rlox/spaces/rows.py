"""Rows: observations and actions as arrays, one row per env.

Observations of a ``Box``, a ``Discrete``, a ``MultiDiscrete`` or a ``MultiBinary`` are one array,
those of a ``Dict`` or a ``Tuple`` a dict with one array per leaf: ``"camera.0"`` names
``space["camera"][0]``. A space that is not nested is its own only leaf; its values stay arrays.
uint8 stays uint8, ``Discrete`` and ``MultiDiscrete`` become int64, everything else
float32.

A policy's batch of B actions is a tensor with one row per action:

| action space | row |
| --- | --- |
| ``Discrete`` | one int64, without a dimension: (B,), counted from 0 |
| ``MultiDiscrete``, ``MultiBinary`` | int64, one column per number, counted from 0 |
| ``Box`` | float32, one column per number, unbounded |
| ``Dict``, ``Tuple`` | the columns of their leaves in order; float32 if a leaf is a ``Box`` |

A custom policy may leave the columns in the shape of the space instead: (B, ``*shape``).

A mask of such an action is a row of bools, True for each possible choice: n columns for a
``Discrete``, the sum of ``nvec`` for a ``MultiDiscrete``, two (0, then 1) per number of a
``MultiBinary``, none for a ``Box``, and those of all leaves in order for ``Dict`` and ``Tuple``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlox.errors import EnvError, SpaceError
from rlox.files import require_memory_for

Space = gymnasium.Space[Any]


def is_nested(space: Space) -> bool:
    """Return whether the space's values become dicts of leaves."""
    return isinstance(space, (spaces.Dict, spaces.Tuple))


def channels_first(image: Space | tuple[int, ...]) -> bool:
    """Return whether an image's channels are its first dimension.

    A space may say so in an attribute of this name. Otherwise the channels are the odd dimension
    of a square image, and the smaller of first and last dimension in other images.

    Args:
        image: the image's space or shape.
    """
    shape = image if isinstance(image, tuple) else image.shape or ()
    if len(shape) != 3:
        return False
    if (said := getattr(image, "channels_first", None)) is not None:
        return bool(said)
    first, middle, last = shape
    return first != last == middle if middle in (first, last) else first < last


def is_bounded(low: npt.ArrayLike, high: npt.ArrayLike) -> bool:
    """Return whether all ranges of numbers between bounds are finite in float32."""
    with np.errstate(all="ignore"):
        ranges = np.asarray(high, np.float32) - np.asarray(low, np.float32)
    return bool(np.isfinite(ranges).all())


def leaf_spaces(space: Space) -> dict[str, Space]:
    """Return the leaves of a space by name; a space that is not nested is named ``""``.

    Raises:
        SpaceError: two leaves share a name, or a nested space has no leaf.
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
    """Return the leaves of a value of a nested space by name; other values unchanged.

    Args:
        space: space of the value, or of each value in a batch that is nested like the space.
        value: nested mappings and sequences, or already split.

    Raises:
        ValueError: the value is not nested like the space.
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
    """Return class, shape and dtype of an array, of each array in a dict, or ``None`` for ``None``.

    Raises:
        AttributeError: it is anything else.
    """
    if value.__class__ is dict:
        return [(key, form_of(each)) for key, each in value.items()]
    return None if value is None else (value.__class__, value.shape, value.dtype)


def map_leaves(function: Callable[..., Any], value: Any, *others: Any) -> Any:
    """Apply a function to a plain value, or to each leaf of a split one.

    Args:
        function: takes one leaf of each value.
        value: plain, or a dict by leaf name.
        others: values with the same leaves.
    """
    if not isinstance(value, dict):
        return function(value, *others)
    return {name: function(leaf, *(o[name] for o in others)) for name, leaf in value.items()}


def map_nested(function: Callable[..., Any], value: Any, *others: Any) -> Any:
    """Apply a function to each leaf of nested mappings and tuples, and keep the nesting.

    Args:
        function: takes one leaf of each value.
        value: a leaf, or nested mappings and tuples of leaves.
        others: nested in the same way.
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


NUMBERS = "biuf"
"""Kinds of dtypes that are numbers."""
LARGEST_REWARD = float(np.finfo(np.float32).max)


class ObservationRows:
    """The arrays for one observation space.

    Args:
        space: space of one env's observation.

    Raises:
        SpaceError: a leaf has no fixed shape, or no leaf holds a number.
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
        lowest = {name: getattr(leaf, "start", 0) for name, leaf in leaves.items()}
        self._lowest: Any = lowest if nested else lowest[""]
        self._integers = [
            (name, leaf, bounds, _needed(leaf.dtype, *bounds))
            for name, leaf in leaves.items()
            if (bounds := integer_bounds(leaf)) is not None
        ]
        self._fitting = 0

    def empty(self, *leading: int) -> Any:
        """Return uninitialised arrays of shape ``(*leading, *shape)``."""
        return map_leaves(
            lambda dtype, shape: np.empty((*leading, *shape), dtype), self._dtypes, self._shapes
        )

    def size_of(self, n: int) -> int:
        """Return the number of bytes in n observations."""
        one: Any = self.empty()
        leaves = one.values() if isinstance(one, dict) else (one,)
        return n * sum(int(leaf.nbytes) for leaf in leaves)

    def require_memory_for(self, n_steps: int, n_envs: int) -> None:
        """Compare a rollout's observations with the memory; again only if it grows.

        Raises:
            MemoryLimitError: they exceed the memory.
        """
        size = (n_steps + 1) * self.size_of(n_envs)
        if size > self._fitting:
            require_memory_for("n_steps", n_steps, size, "take fewer steps or envs")
            self._fitting = size

    def blank(self, *leading: int) -> Any:
        """Return arrays of shape ``(*leading, *shape)`` with 0, or the lowest value."""
        return map_leaves(np.full_like, self.empty(*leading), self._lowest)

    def misfit(self, obs: Any) -> tuple[tuple[int, ...], str] | None:
        """Return the place of a number outside its space of integers, and words for an error.

        Args:
            obs: arrays (..., *shape) by leaf, of any dtypes of numbers.

        Returns:
            The index into the leaf, and the wrong value in words; ``None`` if all numbers fit.
        """
        for name, space, bounds, needed in self._integers:
            leaf = obs[name] if isinstance(obs, dict) else obs
            index = find_misfit(leaf, *(needed if leaf.dtype == space.dtype else bounds))
            if index is not None:
                place = f" in the leaf '{name}'" if name else ""
                return index, f"{leaf[index]}{place}, which {space} does not hold"
        return None

    def require(self, obs: Any, first: int = 0) -> None:
        """Refuse observations (N, ...) of envs that a cast would change or a network cannot take.

        Args:
            obs: observations of the envs from number ``first`` on.
            first: number of the first env.

        Raises:
            EnvError: a number is outside its leaf's space of integers; the text names its env.
        """
        found = self.misfit(obs)
        if found is not None:
            raise EnvError(
                f"env {first + found[0][0]} returned an observation with {found[1]}; change it or "
                "the env's observation_space"
            )

    def stored(self, obs: Any) -> Any:
        """Return observations in their stored dtypes, contiguous."""
        return map_leaves(lambda dtype, leaf: np.ascontiguousarray(leaf, dtype), self._dtypes, obs)

    def batch(self, obs: Any) -> tuple[Any, bool]:
        """Return the user's observations as a batch of B, and whether it was a single one.

        Args:
            obs: one observation, or B of them as arrays (B, *shape), nested like the space.

        Raises:
            ValueError: the shape fits neither, or a value is not a finite number, or is outside its
                space of integers.
        """
        leaves = split(self.space, obs)
        if isinstance(leaves, Mapping) and not is_nested(self.space):
            raise ValueError(f"obs must have shape {self._shapes}, got a dict of {list(leaves)}")
        leaves = map_leaves(_array, leaves)
        singles = self.are_single(leaves)
        names = singles if isinstance(singles, dict) else {"": singles}
        single = next(iter(names.values()))
        if any(other != single for other in names.values()):
            raise ValueError(f"some leaves of obs are one observation, others a batch: {names}")
        if (found := self.misfit(leaves)) is not None:
            raise ValueError(f"obs has {found[1]}; pass observations as the env returns them")
        for leaf in leaves.values() if isinstance(leaves, dict) else (leaves,):
            if not _is_finite(leaf):
                raise ValueError("obs must be finite, got NaN or an infinity; replace it first")
        if single:
            leaves = map_leaves(lambda leaf: leaf[None], leaves)
        return map_leaves(np.array, leaves, self._dtypes), single

    def are_single(self, leaves: Any) -> Any:
        """Return, nested like the arrays, whether each is one observation rather than a batch.

        Args:
            leaves: arrays by leaf, of shape (*shape,) or (B, *shape).

        Raises:
            ValueError: a shape fits neither.
        """
        return map_leaves(_is_single, leaves, self._shapes)


def integer_bounds(space: Space) -> tuple[Any, Any] | None:
    """Return the least and the largest number of a space of integers; ``None`` for other spaces."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    if isinstance(space, spaces.Box) and space.dtype.kind in "iu":
        return space.low, space.high
    return None


def _needed(dtype: Any, *bounds: Any) -> list[Any]:
    """Return bounds for arrays of one dtype: ``None`` for its own, one number for equal ones."""
    limits = np.iinfo(dtype)
    found = zip(bounds, (limits.min, limits.max), map(np.unique, bounds), strict=True)
    return [
        bound if len(each) != 1 else None if each[0] == limit else each.astype(dtype)[0]
        for bound, limit, each in found
    ]


def find_misfit(array: npt.NDArray[Any], low: Any, high: Any) -> tuple[int, ...] | None:
    """Return the index of the first number that is not whole or not within bounds, if any."""
    wrong = []
    # if one number bounds the whole image, NumPy finds the extreme in a tenth of the time
    large = array.size > 999
    if low is not None and not (large and isinstance(low, np.generic) and array.min() >= low):
        wrong.append(array < low)
    if high is not None and not (large and isinstance(high, np.generic) and array.max() <= high):
        wrong.append(array > high)
    if array.dtype.kind == "f":
        wrong.append(array != np.floor(array))  # NaN is not whole either
    if not any(map(np.count_nonzero, wrong)):
        return None
    return tuple(np.argwhere(np.logical_or.reduce(wrong))[0].tolist())


def require_rewards(rewards: npt.NDArray[Any]) -> None:
    """Refuse rewards (N, ...) that are not finite or too large for float32, their stored dtype.

    Raises:
        EnvError: such a reward; the text names its env.
    """
    # runs in every vector step; the sum of squares is a single NumPy call
    if np.vdot(rewards, rewards) < LARGEST_REWARD**2:
        return
    for index, reward in np.ndenumerate(rewards):
        if not abs(reward) <= LARGEST_REWARD:
            needed = "be finite" if not np.isfinite(reward) else "fit float32; clip them in the env"
            raise EnvError(f"env {index[0]} returned the reward {reward}; rewards must {needed}")


def require_finite(obs: Any, *, env_axis: int = 0) -> None:
    """Refuse observations with a NaN or an infinity, which would spread through the networks.

    Args:
        obs: arrays by leaf, of N envs.
        env_axis: axis of the envs: 1 for (T, N, *shape).

    Raises:
        EnvError: a number is not finite; the text names its env.
    """
    for leaf in obs.values() if isinstance(obs, dict) else (obs,):
        if not _is_finite(leaf):
            i = np.argwhere(~np.isfinite(leaf))[0][env_axis]
            raise EnvError(f"env {i} returned an observation that is not finite")


def _is_finite(leaf: npt.NDArray[Any]) -> bool:
    # for a few envs, counting in NumPy takes a third of the time of all()
    return leaf.dtype.kind != "f" or np.count_nonzero(np.isfinite(leaf)) == leaf.size


def _dtype(space: gymnasium.Space[Any]) -> type[np.generic]:
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return np.int64
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return np.uint8 if space.dtype == np.uint8 else np.float32
    raise SpaceError(
        "observations must be Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of "
        f"these, got {space}; wrap the env with gymnasium.wrappers.TransformObservation"
    )


def _array(leaf: Any) -> npt.NDArray[Any]:
    """Return a user's value as an array.

    Raises:
        ValueError: its rows differ in length, or hold anything but numbers.
    """
    try:
        array = np.asarray(leaf)
    except ValueError as error:
        raise ValueError(f"obs cannot be an array: {error}") from None
    if array.dtype.kind not in NUMBERS:
        raise ValueError(f"obs must be numbers, got {leaf!r:.60}")
    return array


def _is_single(array: npt.NDArray[Any], shape: tuple[int, ...]) -> bool:
    if array.shape == shape:
        return True
    if array.shape[1:] != shape or not array.ndim:
        raise ValueError(
            f"obs must have shape {shape} or (B, {', '.join(map(str, shape))}), got {array.shape}"
        )
    return False


@dataclass(frozen=True)
class ActionLeaf:
    """The columns of an action row that belong to one leaf of the space."""

    name: str
    space: gymnasium.Space[Any]
    sizes: tuple[int, ...]
    """Number of choices in each column of a discrete leaf; empty for a ``Box``."""
    columns: int
    """Number of columns; 1 for a ``Discrete``."""


class ActionRows:
    """The rows of one action space.

    Args:
        space: space of one env's action.

    Raises:
        SpaceError: a leaf is neither Discrete, MultiDiscrete, MultiBinary nor a Box.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.space = space
        self.leaves = tuple(_leaf(name, leaf) for name, leaf in leaf_spaces(space).items())
        self.choices = [size for leaf in self.leaves for size in leaf.sizes]
        """Number of choices in each discrete column."""
        self.mask_size = sum(self.choices)
        """Number of columns of a mask; 0 if nothing can be masked."""
        # the most common actions need no conversion: this runs once per vector step
        self._as_they_are = isinstance(space, spaces.Discrete) and space.start == 0

    def to_env(self, rows: npt.NDArray[Any]) -> Any:
        """Return the actions of B rows as one batch that is nested like the space.

        Numbers outside the bounds of a ``Box`` are clipped, and rounded if it holds integers.
        """
        if self._as_they_are and rows.dtype == self.space.dtype:
            return rows.copy()  # the env may write into it
        if not is_nested(self.space):
            return _to_env(self.space, rows)
        rows = rows.reshape(len(rows), -1)
        ends = np.cumsum([leaf.columns for leaf in self.leaves])[:-1]
        parts = zip(self.leaves, np.split(rows, ends, axis=1), strict=True)
        return join(self.space, {leaf.name: _to_env(leaf.space, part) for leaf, part in parts})

    def take(self, actions: Any, index: int) -> Any:
        """Return one of the actions of :meth:`to_env`: an int for a ``Discrete``, else an array."""
        if not is_nested(self.space):
            return _take(self.space, actions, index)
        leaves = split(self.space, actions)
        one = {leaf.name: _take(leaf.space, leaves[leaf.name], index) for leaf in self.leaves}
        return join(self.space, one)

    def check_masks(self, masks: npt.ArrayLike, size: int) -> npt.NDArray[np.bool_]:
        """Return the masks of ``size`` actions as bools (size, mask_size).

        Raises:
            SpaceError: the space has nothing to mask.
            ValueError: the shape is wrong, an entry is neither 0 nor 1, or a mask forbids all
                choices.
        """
        if not self.mask_size:
            raise SpaceError(f"actions of {self.space} cannot be masked: nothing is discrete")
        given = np.asarray(masks)
        if given.shape != (size, self.mask_size):
            raise ValueError(
                f"action masks must have shape {(size, self.mask_size)} for {self.space}, got "
                f"{given.shape}"
            )
        checked = given.astype(np.bool_)
        if given.dtype != np.bool_ and not np.array_equal(checked, given):
            raise ValueError("action masks must hold 0 and 1 only")
        possible = np.logical_or.reduceat(checked, np.cumsum([0, *self.choices[:-1]]), axis=1)
        if not possible.all():
            row, choice = np.argwhere(~possible)[0]
            raise ValueError(
                f"the action mask in row {row} forbids every choice of column {choice} of "
                f"{self.space}; one must be possible"
            )
        return checked


def _leaf(name: str, space: gymnasium.Space[Any]) -> ActionLeaf:
    if isinstance(space, spaces.Discrete):
        return ActionLeaf(name, space, (int(space.n),), 1)
    if isinstance(space, spaces.MultiDiscrete):
        return ActionLeaf(name, space, tuple(space.nvec.flatten().tolist()), space.nvec.size)
    if isinstance(space, spaces.MultiBinary):
        count = int(np.prod(space.shape))
        return ActionLeaf(name, space, (2,) * count, count)
    if isinstance(space, spaces.Box):
        return ActionLeaf(name, space, (), int(np.prod(space.shape)))
    raise SpaceError(
        f"actions must be Discrete, MultiDiscrete, MultiBinary, Box, or Dict and Tuple of these, "
        f"got {space}; wrap the env with gymnasium.wrappers.TransformAction"
    )


def _to_env(space: gymnasium.Space[Any], columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
    shape = (len(columns), *(space.shape or ()))
    numbers = columns.reshape(shape)
    if isinstance(space, spaces.Box):
        if space.dtype.kind in "iu":
            numbers = np.rint(numbers)
        numbers = np.clip(numbers, space.low, space.high)
    elif not isinstance(space, spaces.MultiBinary):
        numbers = numbers.astype(np.int64, copy=False) + space.start  # type: ignore[attr-defined]
    return numbers.astype(space.dtype, copy=False)


def _take(space: gymnasium.Space[Any], actions: npt.NDArray[Any], index: int) -> Any:
    action = actions[index]
    return int(action) if isinstance(space, spaces.Discrete) else np.array(action)


def batch_of_actions(actions: Any, space: gymnasium.Space[Any]) -> Any:
    """Return a batch of actions in the dtypes and the nesting of the batch's space.

    Raises:
        EnvError: the actions have another shape or nesting, are not numbers, or are outside a
            space of integers.
    """
    if not is_nested(space):
        actions = np.asarray(actions)
        if actions.shape != space.shape:
            raise EnvError(f"actions must have shape {space.shape}, got {actions.shape}")
        if actions.dtype.kind not in NUMBERS:
            raise EnvError(f"actions must be numbers, got {actions.tolist()!r:.60}")
        bounds = integer_bounds(space)
        if bounds is not None and (index := find_misfit(actions, *bounds)) is not None:
            raise EnvError(f"actions have {actions[index]}, which {space} does not hold")
        return actions.astype(space.dtype, copy=False)
    try:
        leaves = split(space, actions)
    except ValueError as error:
        raise EnvError(f"the actions are not nested as their space: {error}") from None
    return join(space, map_leaves(batch_of_actions, leaves, leaf_spaces(space)))


MASK_KEY = "action_mask"


def without_mask(space: Space) -> Space:
    """Return an observation space without the key of the action mask."""
    if not isinstance(space, spaces.Dict) or MASK_KEY not in space.spaces:
        return space
    return spaces.Dict([(key, leaf) for key, leaf in space.spaces.items() if key != MASK_KEY])
