"""Views: what a team's actors and critics see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.errors import ConfigError
from rlox.protocols import AgentGroup, MultiAgentVecEnv
from rlox.spaces import leaf_spaces, map_leaves

from rlox_marl.running import TeamPreprocessor

__all__ = ["PolicyView", "make_views", "see_team", "team_space"]

Space = gymnasium.Space[Any]


@dataclass(frozen=True)
class PolicyView:
    """One policy: the agents that it acts for, and its nested observation.

    Leaf ``obs`` is an agent's observation, ``agent`` which of the policy's agents it is, and
    ``critic`` what the critic sees beyond.
    """

    name: str
    """The group's name, or those of the agents."""
    group: AgentGroup
    """Where the agents are."""
    columns: tuple[int, ...]
    """Which of the group's columns they are."""
    space: spaces.Dict
    """Of the nested observation."""
    critic: str
    """Kind of the critic; see :class:`rlox_marl.configs.MAPPOConfig`."""
    groups: tuple[AgentGroup, ...]
    """All groups of the env."""

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the agents, in the order of the columns."""
        return tuple(self.group.agents[column] for column in self.columns)

    @property
    def actor_space(self) -> spaces.Dict:
        """Of the leaves that the actor sees."""
        return self._part("obs", "agent")

    @property
    def critic_space(self) -> spaces.Dict:
        """Of the leaves that the critic sees."""
        local = () if self.critic in ("state", "observations") else ("obs",)
        return self._part(*local, "agent", "critic")

    def _part(self, *keys: str) -> spaces.Dict:
        return spaces.Dict({key: self.space[key] for key in keys if key in self.space.spaces})

    def take(self, by_group: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the agents' rows (N * A, ...) of arrays (N, agents of the group, ...)."""
        chosen = by_group[self.group.name][:, list(self.columns)]
        return chosen.reshape(-1, *chosen.shape[2:])

    def see(self, obs: Mapping[str, Any], state: npt.NDArray[Any] | None) -> dict[str, Any]:
        """Return the leaves of N * A observations, the agents of env 0 first.

        Args:
            obs: by group, as in :class:`rlox.protocols.MultiAgentObs`.
            state: (N, ...) of the envs.
        """
        columns = list(self.columns)
        own = map_leaves(
            lambda leaf: leaf[:, columns].reshape(-1, *leaf.shape[2:]), obs[self.group.name]
        )
        seen = {f"obs.{k}": v for k, v in own.items()} if isinstance(own, dict) else {"obs": own}
        rows = len(next(iter(seen.values())))
        n_envs = rows // len(columns)
        if "agent" in self.space.spaces:
            seen["agent"] = np.tile(np.arange(len(columns)), n_envs)
        if self.critic in ("state", "agent_state"):
            assert state is not None
            seen["critic"] = np.repeat(state, len(columns), axis=0)
        elif self.critic == "observations":
            for name, leaf in self._everything(obs, n_envs).items():
                seen[name] = np.repeat(leaf, len(columns), axis=0)
        return {name: seen[name] for name in self.leaf_names}

    @property
    def leaf_names(self) -> list[str]:
        """Names of the leaves, in the order of the space."""
        return list(leaf_spaces(self.space))

    def _everything(self, obs: Mapping[str, Any], n_envs: int) -> dict[str, npt.NDArray[Any]]:
        if isinstance(self.space["critic"], spaces.Box):
            return {"critic": see_team(self.groups, obs, None)}
        leaves = {}
        for group in self.groups:
            for column, agent in enumerate(group.agents):
                found = obs[group.name]
                named = found if isinstance(found, dict) else {"": found}
                for name, leaf in named.items():
                    end = f".{name}" if name else ""
                    leaves[f"critic.{agent}{end}"] = leaf[:, column]
        return leaves


def make_views(
    env: MultiAgentVecEnv | TeamPreprocessor, critic: str, share: str
) -> tuple[PolicyView, ...]:
    """Return a view for each policy of a team.

    Args:
        env: its groups and its state; or a preprocessor, for those of what is seen.
        critic: kind of the critic.
        share: ``"group"`` for a policy per group of equal spaces, ``"agent"`` for one per agent, or
            the names of agents that share one, separated by ``,``, and policies by ``;``.

    Raises:
        ConfigError: the critic needs a state and the env has none; or ``share`` does not name each
            agent once, or puts agents of different spaces together.
    """
    if critic == "auto":
        critic = "observations" if env.state_space is None else "state"
    if critic in ("state", "agent_state") and env.state_space is None:
        raise ConfigError(
            f"critic='{critic}' needs an env with a state, and this one has none; take "
            "critic='observations' or 'local'"
        )
    beyond: dict[str, Space] = {}
    if critic == "observations":
        beyond = {"critic": _all_observations(env.groups)}
    elif critic != "local":
        assert env.state_space is not None
        beyond = {"critic": env.state_space}
    views = []
    for group in env.groups:
        for name, part in _parts(group, share, env.possible_agents):
            numbers = {"agent": spaces.Discrete(len(part))} if len(part) > 1 else {}
            space = spaces.Dict({"obs": group.observation_space, **numbers, **beyond})
            views.append(PolicyView(name, group, part, space, critic, tuple(env.groups)))
    return tuple(views)


def _parts(
    group: AgentGroup, share: str, everybody: tuple[str, ...]
) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and columns of each policy of a group."""
    if share == "group":
        return [(group.name, tuple(range(len(group.agents))))]
    if share == "agent":
        return [(agent, (column,)) for column, agent in enumerate(group.agents)]
    shared = [[agent.strip() for agent in part.split(",")] for part in share.split(";")]
    named = [agent for part in shared for agent in part]
    if sorted(named) != sorted(everybody):
        raise ConfigError(
            f"share_parameters='{share}' must be 'group', 'agent', or name each agent once, as in "
            f"'{','.join(everybody[:-1])};{everybody[-1]}'; the agents are {', '.join(everybody)}"
        )
    parts = []
    for part in shared:
        own = [agent for agent in part if agent in group.agents]
        if own and len(own) < len(part):
            raise ConfigError(
                f"share_parameters='{share}' has one policy for agents of different spaces, "
                f"{', '.join(part)}; separate them with ';'"
            )
        if own:
            columns = tuple(sorted(group.agents.index(agent) for agent in own))
            parts.append(("+".join(group.agents[column] for column in columns), columns))
    return parts


def team_space(env: MultiAgentVecEnv) -> Space:
    """Return the space of what a team is seen by: its state, else all observations as one vector.

    Raises:
        ConfigError: there is no state, and the observations are not all numbers.
    """
    if env.state_space is not None:
        return env.state_space
    space = _all_observations(env.groups)
    if not isinstance(space, spaces.Box):
        raise ConfigError(
            f"mixing by the state needs an env with a state or observations of numbers alone, and "
            f"{type(env).__name__} has neither; take vdn, which needs none"
        )
    return space


def see_team(
    groups: tuple[AgentGroup, ...], obs: Mapping[str, Any], state: npt.NDArray[Any] | None
) -> npt.NDArray[Any]:
    """Return (N, *shape) of :func:`team_space`; arguments as of :meth:`PolicyView.see`."""
    if state is not None:
        return state
    n_envs = len(obs[groups[0].name])
    parts = [np.reshape(obs[group.name], (n_envs, -1)) for group in groups]
    return np.concatenate(parts, axis=1, dtype=np.float32)


def _all_observations(groups: tuple[AgentGroup, ...]) -> Space:
    """Return the space of all observations: one vector if all are numbers, else one leaf each."""
    found = [group.observation_space for group in groups]
    if all(isinstance(space, spaces.Box) and space.dtype != np.uint8 for space in found):
        size = sum(
            len(group.agents) * int(np.prod(space.shape or ()))
            for group, space in zip(groups, found, strict=True)
        )
        return spaces.Box(-np.inf, np.inf, (size,), np.float32)
    return spaces.Dict(
        {agent: group.observation_space for group in groups for agent in group.agents}
    )
