"""Groups of agents with equal spaces: their actions and returns, and seeds of their envs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.envs.running import EpisodeStatistics
from rlox.errors import EnvError, suggest
from rlox.protocols import AgentGroup
from rlox.spaces.rows import (
    is_nested,
    join,
    leaf_spaces,
    split,
    without_mask,
)

__all__ = ["TeamStatistics", "check_actions", "env_seeds", "group_agents", "take_action"]

Space = gymnasium.Space[Any]

Leaves = Mapping[str, Mapping[str, npt.NDArray[Any]]]


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


def check_actions(
    groups: tuple[AgentGroup, ...],
    actions: Any,
    active: Mapping[str, npt.NDArray[np.bool_]],
) -> Leaves:
    """Return the actions that one call of ``step_all`` takes, by group and leaf: (N, A, ...).

    The leaf of a space that is not nested is "".

    Args:
        groups: of the env.
        actions: by group, (N, A, ...) arrays nested as the group's action space is.
        active: by group, (N, A) the agents that act; other rows may hold anything.

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
        wrong = active & ~_inside(leaf, array)
        if wrong.any():
            env, column = np.argwhere(wrong)[0]
            raise EnvError(
                f"the action of agent '{group.agents[column]}' in env {env} lies outside its "
                f"space {leaf}: {array[env, column].tolist()}"
            )
        checked[name] = np.asarray(array, dtype=leaf.dtype)
    return checked


def _inside(space: Space, array: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return (N, A) whether each action lies in the space."""
    inside: npt.NDArray[np.bool_]
    if isinstance(space, spaces.Box):
        inside = (array >= space.low) & (array <= space.high)
    elif isinstance(space, spaces.MultiBinary):
        inside = (array == 0) | (array == 1)
    else:
        size: Any = space.n if isinstance(space, spaces.Discrete) else space.nvec  # type: ignore[attr-defined]
        start: Any = space.start  # type: ignore[attr-defined]
        inside = (array >= start) & (array < start + size)
    return np.asarray(inside.reshape(*array.shape[:2], -1).all(-1))


def env_seeds(seed: int | Sequence[int] | None, n_envs: int) -> list[int | None]:
    """Return one seed per env.

    Args:
        seed: an integer s gives env i the seed s + i; a sequence gives each its own; ``None`` gives
            none.
        n_envs: number of envs N.

    Raises:
        EnvError: the sequence has another length than N, or a seed is negative or no integer.
    """
    if seed is None:
        return [None] * n_envs
    seeds = [seed + i for i in range(n_envs)] if isinstance(seed, (int, np.integer)) else list(seed)
    if len(seeds) != n_envs:
        raise EnvError(f"seed has {len(seeds)} seeds for {n_envs} envs; give one per env")
    for one in seeds:
        if not isinstance(one, (int, np.integer)) or one < 0:
            raise EnvError(f"seed must be integers of at least 0, got {one!r}")
    return [int(one) for one in seeds]


class TeamStatistics:
    """Returns and lengths of the last finished episodes of N envs of several agents.

    An agent's return is all that it is paid in an episode, also while it waits for its turn; that
    of an agent that never joins is 0. A team's return is the mean over its agents.

    Args:
        groups: the env's agents.
        n_envs: number of envs N.
        window: number of episodes that the means cover.
    """

    def __init__(self, groups: Sequence[AgentGroup], n_envs: int, window: int = 100) -> None:
        self._groups = tuple(groups)
        self._team = EpisodeStatistics(n_envs, window)
        self._agents = {
            agent: EpisodeStatistics(n_envs, window) for group in groups for agent in group.agents
        }

    def add(
        self, rewards: Mapping[str, npt.NDArray[Any]], episode_ended: npt.NDArray[np.bool_]
    ) -> None:
        """Add T vector steps.

        Args:
            rewards: by group, (T, N, A).
            episode_ended: (T, N) whether an env's episode ended with the step.
        """
        for group in self._groups:
            for column, agent in enumerate(group.agents):
                self._agents[agent].add(rewards[group.name][:, :, column], episode_ended)
        everybody = [np.asarray(rewards[group.name], np.float64) for group in self._groups]
        self._team.add(np.concatenate(everybody, axis=2).mean(axis=2), episode_ended)

    def forget(self) -> None:
        """Drop the running episodes: all envs have been reset."""
        for one in (self._team, *self._agents.values()):
            one.forget(slice(None))

    @property
    def finished(self) -> int:
        """Number of episodes finished so far, of envs."""
        return self._team.finished

    @property
    def mean_return(self) -> float:
        """Mean over the window's episodes and over agents; NaN before the first."""
        return self._team.mean_return

    @property
    def mean_length(self) -> float:
        """Mean length of the window's episodes in env steps; NaN before the first."""
        return self._team.mean_length

    @property
    def agent_returns(self) -> dict[str, float]:
        """Mean return of each agent over the window's episodes; NaN before the first."""
        return {agent: one.mean_return for agent, one in self._agents.items()}

    def metrics(self) -> dict[str, Any]:
        """Return what an iteration reports of them, and of each agent ``return/<agent>``."""
        returns = {f"return/{agent}": one for agent, one in self.agent_returns.items()}
        return {**self._team.metrics(), "agents": returns}

    def state_dict(self) -> dict[str, Any]:
        """Return the running sums and the windows."""
        agents = {agent: one.state_dict() for agent, one in self._agents.items()}
        return {"team": self._team.state_dict(), "agents": agents}

    def fits(self, state: Mapping[str, Any]) -> bool:
        """Whether a state is that of the statistics of as many envs and of the same agents."""
        return self._team.fits(state["team"]) and set(state["agents"]) == set(self._agents)

    def load_state_dict(self, state: Mapping[str, Any], *, keep_running: bool) -> None:
        """Restore the windows, and the running sums when the envs go on where they were."""
        self._team.load_state_dict(state["team"], keep_running=keep_running)
        for agent, one in self._agents.items():
            one.load_state_dict(state["agents"][agent], keep_running=keep_running)
