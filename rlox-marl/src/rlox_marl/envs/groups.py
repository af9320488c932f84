"""Groups of agents with equal spaces, and their arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import setitem
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from rlox.protocols import AgentGroup
from rlox.spaces.masks import without_mask
from rlox.spaces.rows import ActionRows, ObservationRows, map_leaves

__all__ = ["GroupRows", "group_agents"]

Space = gymnasium.Space[Any]


def group_agents(
    agents: Sequence[str],
    observation_spaces: Mapping[str, Space],
    action_spaces: Mapping[str, Space],
) -> tuple[AgentGroup, ...]:
    """Group agents by equal spaces, in the order of their first agents.

    A group is called as its agents are, without the number at their end, if no other group is
    (``agent`` of ``agent_0`` and ``agent_1``); else ``group_0``, ``group_1`` and so on.

    Args:
        agents: all of an env, in its order.
        observation_spaces: by agent, with their action masks.
        action_spaces: by agent.
    """
    alike: list[list[str]] = []
    for agent in agents:
        for group in alike:
            first = group[0]
            if (
                observation_spaces[agent] == observation_spaces[first]
                and action_spaces[agent] == action_spaces[first]
            ):
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


class GroupRows:
    """Arrays of one group of A agents in N envs.

    Args:
        group: the agents and their spaces.
        n_envs: number of envs N.

    Raises:
        SpaceError: the observations cannot be kept as arrays, or the actions are of no kind that
            policies act with.
    """

    def __init__(self, group: AgentGroup, n_envs: int) -> None:
        self.group = group
        self.shape = (n_envs, len(group.agents))
        self.column = {agent: i for i, agent in enumerate(group.agents)}
        self.actions = ActionRows(group.action_space)
        self._observations = ObservationRows(group.observation_space)

    def observations(self) -> Any:
        """Return observations that show nothing, for all rows."""
        return self._observations.blank(*self.shape)

    def flags(self) -> npt.NDArray[np.bool_]:
        """Return (N, A) False."""
        return np.zeros(self.shape, np.bool_)

    def numbers(self) -> npt.NDArray[np.float64]:
        """Return (N, A) zeros."""
        return np.zeros(self.shape)

    def masks(self) -> npt.NDArray[np.bool_]:
        """Return (N, A, mask_size) True."""
        return np.ones((*self.shape, self.actions.mask_size), np.bool_)

    def set_observation(self, arrays: Any, env: int, agent: str, leaves: Any) -> None:
        """Write the observation of one agent."""
        row = (env, self.column[agent])
        map_leaves(lambda array, leaf: setitem(array, row, leaf), arrays, leaves)
