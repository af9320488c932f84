"""Groups of agents with equal spaces, and their actions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from rlox.errors import EnvError, suggest
from rlox.protocols import AgentGroup
from rlox.spaces.rows import integer_bounds, is_nested, join, leaf_spaces, split, without_mask

Space = gymnasium.Space[Any]

Leaves = Mapping[str, Mapping[str, npt.NDArray[Any]]]


def group_agents(
    agents: Sequence[str],
    observation_spaces: Mapping[str, Space],
    action_spaces: Mapping[str, Space],
) -> tuple[AgentGroup, ...]:
    """Group agents by equal spaces, in the order of their first agents.

    A group takes its agents' common name without the trailing number (``agent`` for ``agent_0`` and
    ``agent_1``) if no other group has that name; else ``group_0``, ``group_1`` and so on.

    Args:
        agents: all agents of an env, in its order.
        observation_spaces: by agent, including action masks.
        action_spaces: by agent.
    """
    alike: list[list[str]] = []
    for agent in agents:
        own = observation_spaces[agent], action_spaces[agent]
        for group in alike:
            if own == (observation_spaces[group[0]], action_spaces[group[0]]):
                group.append(agent)
                break
        else:
            alike.append([agent])
    stems = [{re.sub(r"_?\d+$", "", agent) for agent in group} for group in alike]
    names = [min(stem) if len(stem) == 1 else "" for stem in stems]
    return tuple(
        AgentGroup(
            name if name and names.count(name) == 1 else f"group_{i}",
            tuple(group),
            without_mask(observation_spaces[group[0]]),
            action_spaces[group[0]],
        )
        for i, (name, group) in enumerate(zip(names, alike, strict=True))
    )


def check_actions(
    groups: tuple[AgentGroup, ...], actions: Any, active: Mapping[str, npt.NDArray[np.bool_]]
) -> Leaves:
    """Check the actions of one ``step_all`` call; return them by group and leaf, (N, A, ...).

    A space without nesting has the one leaf "".

    Args:
        groups: groups of the env.
        actions: by group, (N, A, ...) arrays nested like the group's action space.
        active: by group, (N, A) True for acting agents; other rows may hold anything.

    Raises:
        EnvError: a group is missing or unknown, an array has another shape or kind, or an action
            lies outside its space.
    """
    names = [group.name for group in groups]
    if not isinstance(actions, Mapping):
        raise EnvError(
            f"actions must be a dict by group ({', '.join(names)}), got {type(actions).__name__}"
        )
    for name in actions:
        if name not in names:
            raise EnvError(
                f"actions has the group '{name}', but the groups are {', '.join(names)}"
                f"{suggest(str(name), names)}"
            )
    for name in names:
        if name not in actions:
            raise EnvError(f"actions has no group '{name}'; give an array for each group")
    return {g.name: _checked(g, actions[g.name], active[g.name]) for g in groups}


def take_action(actions: Leaves, group: AgentGroup, column: int, env: int) -> Any:
    """Return one agent's action: an integer for a ``Discrete``, else arrays."""
    space = group.action_space
    one = {name: actions[group.name][name][env, column].copy() for name in leaf_spaces(space)}
    return join(space, one) if is_nested(space) else one[""]


def _checked(
    group: AgentGroup, given: Any, active: npt.NDArray[np.bool_]
) -> dict[str, npt.NDArray[Any]]:
    space = group.action_space
    try:
        leaves = split(space, given)
    except ValueError as error:
        raise EnvError(
            f"actions of group '{group.name}' are not nested as their space: {error}"
        ) from None
    leaves = leaves if is_nested(space) else {"": leaves}
    checked = {}
    for name, leaf in leaf_spaces(space).items():
        what = f"actions of group '{group.name}'" + (f", leaf '{name}'," if name else "")
        array = np.asarray(leaves[name])
        shape = active.shape + (leaf.shape or ())
        if array.shape != shape:
            raise EnvError(f"{what} must have shape {shape}, got {array.shape}")
        if array.dtype.kind not in ("biu" if leaf.dtype.kind in "biu" else "biuf"):  # type: ignore[union-attr]
            raise EnvError(f"{what} must have dtype {leaf.dtype}, got {array.dtype}")
        low, high = integer_bounds(leaf) or (leaf.low, leaf.high)  # type: ignore[attr-defined]
        inside = (array >= low) & (array <= high)
        wrong = active & ~inside.reshape(*active.shape, -1).all(-1)
        if wrong.any():
            env, column = np.argwhere(wrong)[0]
            raise EnvError(
                f"the action of agent '{group.agents[column]}' in env {env} lies outside its "
                f"space {leaf}: {array[env, column].tolist()}"
            )
        checked[name] = np.asarray(array, dtype=leaf.dtype)
    return checked
