"""Validation of multi-agent env steps, by agent, step and field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.errors import EnvError, suggest
from rlox.spaces.rows import is_nested, leaf_spaces, split

__all__ = ["Where", "flag", "members", "number", "observation"]


@dataclass
class Where:
    """The place of an error: which env, and how far its episode is."""

    env: int
    """Index i of N."""
    step: int = 0
    """Number of steps of the episode; 0 is the reset."""

    def error(self, field: str, agent: str | None, problem: str) -> EnvError:
        """Return the error for a field that an agent got, or that all agents share."""
        of = f" of agent '{agent}'" if agent is not None else ""
        step = f"step {self.step}" if self.step else "the reset"
        return EnvError(f"{field}{of} in {step} of env {self.env} {problem}")


def members(where: Where, field: str, given: Any, needed: Iterable[str], known: Iterable[str],
            why: str) -> Mapping[str, Any]:  # fmt: skip
    """Return what a field holds by agent.

    Args:
        where: for errors.
        field: its name.
        given: what the env returned.
        needed: agents that must be in it.
        known: agents that may be in it.
        why: what the agents ``needed`` did, for errors.

    Raises:
        EnvError: it is no mapping, lacks an agent, or has an agent that is not in the episode.
    """
    if not isinstance(given, Mapping):
        raise where.error(field, None, f"must be a dict by agent, got {type(given).__name__}")
    known = set(known)
    for agent in given:
        if agent not in known:
            raise where.error(
                field, agent, "was given, but the agent is not in the episode; leave it out, or "
                "list it in env.agents"
                f"{suggest(str(agent), known)}",
            )  # fmt: skip
    for agent in needed:
        if agent not in given:
            raise where.error(field, agent, f"is missing; the agent {why}, so give it")
    return given


def number(where: Where, field: str, agent: str, value: Any) -> float:
    """Return a reward as a float.

    Raises:
        EnvError: it is not one finite number.
    """
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in "biuf":
        got = f"{type(value).__name__} of shape {array.shape} and dtype {array.dtype}"
        raise where.error(field, agent, f"must be one number, got {got}")
    if not np.isfinite(array):
        raise where.error(field, agent, f"must be finite, got {float(array)}")
    return float(array)


def flag(where: Where, field: str, agent: str, value: Any) -> bool:
    """Return a flag as a bool.

    Raises:
        EnvError: it is not one truth value.
    """
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in "biu" or array not in (0, 1):
        raise where.error(field, agent, f"must be True or False, got {value!r}")
    return bool(array)


def observation(where: Where, field: str, agent: str | None, space: gymnasium.Space[Any],
                value: Any, *, boxes_bind: bool = True) -> Any:  # fmt: skip
    """Return an observation or a state as arrays by leaf.

    Args:
        where: for errors.
        field: what it is, for errors.
        agent: whose it is; ``None``: the team's.
        space: of it.
        value: what the env gave.
        boxes_bind: whether numbers outside the bounds of a box are an error.

    Raises:
        EnvError: it is not nested as its space, or has another shape or kind of number, or lies
            outside the space.
    """
    try:
        leaves = split(space, value)
    except ValueError as error:
        raise where.error(field, agent, f"is not nested as its space: {error}") from None
    if not is_nested(space):
        return _leaf(where, field, agent, space, leaves, boxes_bind)
    return {
        name: _leaf(where, f"{field} '{name}'", agent, leaf, leaves[name], boxes_bind)
        for name, leaf in leaf_spaces(space).items()
    }


def _leaf(where: Where, field: str, agent: str | None, space: gymnasium.Space[Any],
          value: Any, boxes_bind: bool) -> npt.NDArray[Any]:  # fmt: skip
    try:
        array = np.array(value)  # a copy: an env may write each observation into the same array
    except ValueError as error:
        raise where.error(field, agent, f"is no array: {error}") from None
    if array.shape != space.shape:
        raise where.error(
            field, agent, f"has shape {array.shape}, expected {space.shape} of its space {space}; "
            "change it or the space",
        )  # fmt: skip
    integers = np.issubdtype(space.dtype or np.float32, np.integer)
    if array.dtype.kind not in ("biu" if integers else "biuf"):
        raise where.error(
            field, agent, f"has dtype {array.dtype}, expected {space.dtype} of its space {space}"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise where.error(field, agent, "is not finite; an infinity or a NaN spreads through the "
                          "networks")  # fmt: skip
    if (boxes_bind or not isinstance(space, spaces.Box)) and _outside(space, array):
        raise where.error(
            field, agent, f"lies outside its space {space}: it holds {array.min()} to "
            f"{array.max()}; change it or the space",
        )  # fmt: skip
    return array


def _outside(space: gymnasium.Space[Any], array: npt.NDArray[Any]) -> bool:
    if isinstance(space, spaces.Box):
        if not (space.bounded_below.any() or space.bounded_above.any()):
            return False
        # float32, in which observations are kept, so that a rounded bound is inside
        given = array.astype(np.float32)
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        return bool((given < low).any() or (given > high).any())
    if isinstance(space, spaces.Discrete):
        return not space.start <= array < space.start + space.n
    return not space.contains(array.astype(space.dtype))
