"""Spaces as plain data and back; the arguments of predictions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlox.errors import SpaceError
from rlox.spaces.rows import MASK_KEY, ActionRows, ObservationRows, leaf_spaces, map_nested

Space = gymnasium.Space[Any]

NUMBERS = re.compile("[<>|][biuf][0-9]{1,2}")
"""Dtypes of numbers, spelled like ``numpy.dtype.str``."""


def number_dtype(text: str) -> np.dtype[Any]:
    """Return the numeric dtype that a text names; NumPy alone would accept other texts too.

    Raises:
        TypeError, ValueError: the text does not name one.
    """
    if not NUMBERS.fullmatch(text):
        raise ValueError(f"the dtype {text!r} is not a number's")
    return np.dtype(text)


def space_to_data(space: Space) -> dict[str, Any]:
    """Return a space as a dict of plain values and arrays.

    Raises:
        SpaceError: a leaf is of an unsupported kind.
    """
    if isinstance(space, spaces.Box):
        data = {"kind": "box", "low": space.low, "high": space.high, "dtype": space.dtype.str}
        said = getattr(space, "channels_first", None)
        return data if said is None else {**data, "channels_first": bool(said)}
    if isinstance(space, spaces.Discrete):
        data = {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
        return data | _other_than_int64(space)
    if isinstance(space, spaces.MultiDiscrete):
        data = {"kind": "multi_discrete", "nvec": space.nvec, "start": space.start}
        return data | _other_than_int64(space)
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi_binary", "shape": [int(size) for size in space.shape]}
    if isinstance(space, spaces.Dict):
        if any(type(key) not in (str, int) for key in space.spaces):
            raise SpaceError(f"the keys of a Dict must be texts or whole numbers, got {space}")
        pairs = [[key, space_to_data(leaf)] for key, leaf in space.spaces.items()]
        return {"kind": "dict", "spaces": pairs}
    if isinstance(space, spaces.Tuple):
        return {"kind": "tuple", "spaces": [space_to_data(leaf) for leaf in space.spaces]}
    raise SpaceError(f"a space of this kind cannot be written down: {space}")


def _other_than_int64(space: Space) -> dict[str, Any]:
    return {} if space.dtype == np.int64 else {"dtype": np.dtype(space.dtype).str}


def space_from_data(data: Mapping[str, Any]) -> Space:
    """Return the space from the result of :func:`space_to_data`.

    Raises:
        LookupError, TypeError, ValueError: the data does not describe a space.
    """
    kind = data["kind"]
    if kind == "box":
        dtype = number_dtype(data["dtype"])
        low, high = (_of_dtype(data[name], dtype) for name in ("low", "high"))
        box = spaces.Box(low, high, low.shape, dtype.type)
        if "channels_first" in data:
            box.channels_first = bool(data["channels_first"])  # type: ignore[attr-defined]
        return box
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
        # pairs, because gymnasium sorts a plain dict, and so the columns of actions
        pairs: Any = [(key, space_from_data(leaf)) for key, leaf in data["spaces"]]
        return spaces.Dict([(k if type(k) is int else str(k), leaf) for k, leaf in pairs])  # type: ignore[misc]
    if kind == "tuple":
        return spaces.Tuple([space_from_data(leaf) for leaf in data["spaces"]])
    raise ValueError(f"unknown space {kind!r}")


def _of_dtype(given: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an array that has the dtype already; a cast could change its numbers.

    Raises:
        ValueError: the dtype differs.
    """
    array: npt.NDArray[Any] = np.asarray(given)
    if array.dtype != dtype:
        raise ValueError(f"expected numbers of the dtype {dtype}, got {array.dtype}")
    return array


def count_numbers(space: Space) -> int:
    """Return the number of numbers in a value of the space."""
    return sum(math.prod(leaf.shape or ()) for leaf in leaf_spaces(space).values())


def agent_numbers(agent_idx: Any, agents: Sequence[str]) -> npt.NDArray[Any]:
    """Return the number of one agent, or (B,) of them, as an array.

    Args:
        agent_idx: the user's argument.
        agents: names of all agents.

    Raises:
        ValueError: it is not an integer, or there is no agent with that number.
    """
    numbers = np.asarray(agent_idx)
    if numbers.dtype.kind not in "iu" or numbers.ndim > 1:
        raise ValueError(f"agent_idx must be integers, one or (B,) of them, got {agent_idx!r}")
    if ((numbers < 0) | (numbers >= len(agents))).any():
        raise ValueError(
            f"agent_idx must lie in [0, {len(agents) - 1}], got {agent_idx!r}; the agents are "
            f"{', '.join(agents)}"
        )
    return numbers


def predict_agents(
    agents: Sequence[str],
    predict: Callable[[int, Any, Any, Any, Any], tuple[Any, Any]],
    obs: Any,
    agent_idx: Any,
    action_masks: Any,
    state: Any,
    episode_start: Any,
    *,
    remembers: bool,
) -> tuple[Any, Any]:
    """Return actions of one or several agents, and what they remember.

    Args:
        agents: names of all agents.
        predict: maps an agent's number, observations, masks, state and episode starts, the last
            three or ``None``, to its actions and its next state.
        obs: of the agent ``agent_idx``; (B, *shape), a row for each number in ``agent_idx``; or a
            dict by agent name, and then so are the other arguments and both results.
        agent_idx: number of one agent, or (B,) numbers; unused if ``obs`` is by name.
        action_masks: (B, mask_size); ``None`` masks nothing.
        state: as returned; ``None`` at the beginning.
        episode_start: of one agent, or of all by name.
        remembers: whether a state is asked for, and there is any.

    Raises:
        ValueError: there is no such agent, there are not B observations or masks, a state would
            be of B agents, or an argument is not by agent.
    """
    if isinstance(obs, Mapping) and not obs:
        raise ValueError(f"obs must hold at least one agent of {', '.join(agents)}, got none")
    if isinstance(obs, Mapping) and not obs.keys().isdisjoint(agents):
        masks, after = ({} if given is None else given for given in (action_masks, state))
        for name, given in (("obs", obs), ("action_masks", masks), ("state", after)):
            if not isinstance(given, Mapping) or not given.keys() <= set(agents):
                got = list(given) if isinstance(given, Mapping) else type(given).__name__
                raise ValueError(f"{name} must be a dict by agent, {', '.join(agents)}, got {got}")
        actions: Any = {}
        after = dict(after)  # keeps what agents without a turn remember
        for agent, seen in obs.items():
            own = seen, masks.get(agent), after.get(agent), episode_start
            actions[agent], after[agent] = predict(agents.index(agent), *own)
        return actions, after
    numbers = agent_numbers(agent_idx, agents)
    if not numbers.ndim:
        return predict(int(numbers), obs, action_masks, state, episode_start)
    if remembers:
        raise ValueError("state is of one agent; call predict once for each agent_idx")
    _require_rows("obs", obs, len(numbers))
    masks = None if action_masks is None else np.asarray(action_masks)
    if masks is not None:
        _require_rows("action_masks", masks, len(numbers))
    chosen: list[Any] = [None] * len(numbers)
    for number in np.unique(numbers).tolist():
        rows = np.flatnonzero(numbers == number)
        seen = map_nested(lambda leaf, rows=rows: np.asarray(leaf)[rows], obs)
        some, _ = predict(number, seen, None if masks is None else masks[rows], None, None)
        for i, row in enumerate(rows):
            chosen[row] = map_nested(lambda leaf, i=i: leaf[i], some)
    return map_nested(lambda *leaves: np.stack(leaves), *chosen), None


def _require_rows(name: str, value: Any, size: int) -> None:
    """Refuse a number of rows that differs from the number of agents."""

    def check(leaf: Any) -> None:
        if np.shape(leaf)[:1] != (size,):
            raise ValueError(
                f"{name} must have one row for each of the {size} numbers in agent_idx, got shape "
                f"{np.shape(leaf)}"
            )

    map_nested(check, value)


@dataclass(frozen=True)
class Request:
    """A user's request for actions."""

    obs: Any
    """(B, *shape) arrays, for a nested space a dict of them by leaf name."""
    masks: npt.NDArray[np.bool_] | None
    """(B, mask_size)"""
    size: int
    """B"""
    single: bool
    """Whether the user passed one observation, which becomes a batch of one."""
    rows: ActionRows

    def actions(self, chosen: npt.NDArray[Any]) -> Any:
        """Return action rows (B, ...) in the user's form."""
        actions = self.rows.to_env(chosen)
        return self.rows.take(actions, 0) if self.single else actions


def read_request(
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    obs: Any,
    action_masks: npt.ArrayLike | None,
) -> Request:
    """Return the user's arguments as a batch.

    Args:
        observation_space: space of one env; its shape distinguishes one observation from a batch.
        action_space: space of one env's action.
        obs: one observation or a batch (B, *shape), nested like the space. The key
            ``"action_mask"`` of a dict is used as masks.
        action_masks: (mask_size,) or (B, mask_size); ``None`` masks nothing.

    Raises:
        SpaceError: the actions take no masks.
        ValueError: ``obs`` or ``action_masks`` has another shape, or a mask allows nothing.
    """
    if isinstance(obs, Mapping) and MASK_KEY in obs and action_masks is None:
        action_masks = obs[MASK_KEY]
        obs = {key: value for key, value in obs.items() if key != MASK_KEY}
    batch, single = ObservationRows(observation_space).batch(obs)
    size = len(next(iter(batch.values())) if isinstance(batch, dict) else batch)
    rows = ActionRows(action_space)
    masks = None
    if action_masks is not None:
        given = np.asarray(action_masks)[None] if single else np.asarray(action_masks)
        masks = rows.check_masks(given, size)
    return Request(batch, masks, size, single, rows)


def remembered(state: Any) -> Mapping[str, Any]:
    """Return the user's ``state`` by name; empty for ``None``.

    Raises:
        ValueError: it did not come from a prediction.
    """
    if state is None:
        return {}
    if not isinstance(state, Mapping) or not state.keys() <= {"frames", "memory"}:
        got = list(state) if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(
            f"state must be None or what predict returned with the last actions, got {got}"
        )
    return state


def memory_of(
    state: npt.ArrayLike | None, shape: tuple[int, int], episode_start: npt.ArrayLike | None
) -> npt.NDArray[np.float32]:
    """Return the memory (B, state_size) to act with, cleared where an episode begins.

    Args:
        state: the previous memory; ``None`` is an empty one.
        shape: (B, state_size).
        episode_start: bool or (B,) bools; ``None`` if none begins.

    Raises:
        ValueError: ``state`` or ``episode_start`` has another shape.
    """
    memory = np.zeros(shape, np.float32) if state is None else np.array(state, np.float32)
    if memory.shape != shape:
        raise ValueError(f"state must have shape {shape}, got {memory.shape}")
    if episode_start is not None:
        if np.shape(episode_start) not in ((), shape[:1]):
            raise ValueError(
                f"episode_start must be one bool or {shape[0]}, got shape {np.shape(episode_start)}"
            )
        memory[np.broadcast_to(np.asarray(episode_start, np.bool_), shape[:1])] = 0.0
    return memory
