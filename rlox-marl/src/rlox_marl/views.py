"""Views: the inputs of a team's actors and critics, and their preprocessing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.envs.preprocessing import Preprocessor
from rlox.errors import ConfigError
from rlox.protocols import AgentGroup, MultiAgentObs, MultiAgentStep, MultiAgentVecEnv
from rlox.spaces import ActionRows, ObservationRows, leaf_spaces, map_leaves, map_nested

Space = gymnasium.Space[Any]

Frames = dict[str, dict[str, Any]]
"""By group: ``seen``, the observations at the last action of its N * A agents, and ``known``,
(N * A,) True for agents that have acted in the episode."""


@dataclass(frozen=True)
class PolicyView:
    """One policy: its agents, and its nested observation.

    Leaf ``obs`` is an agent's observation, ``agent`` the agent's index within the policy, and
    ``critic`` the critic's additional input.
    """

    name: str
    """Name of the group, or names of the agents."""
    group: AgentGroup
    """The agents' group."""
    columns: tuple[int, ...]
    """The agents' columns in the group."""
    space: spaces.Dict
    """Space of the nested observation."""
    critic: str
    """Kind of the critic; see :class:`rlox_marl.configs.MAPPOConfig`."""
    groups: tuple[AgentGroup, ...]
    """All groups of the env."""

    @cached_property
    def rows(self) -> ObservationRows:
        """Layout of nested observations as arrays."""
        return ObservationRows(self.space)

    @cached_property
    def actions(self) -> ActionRows:
        """Layout of actions as arrays."""
        return ActionRows(self.group.action_space)

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the agents, in the order of the columns."""
        return tuple(self.group.agents[column] for column in self.columns)

    @property
    def actor_space(self) -> spaces.Dict:
        """Space of the actor's leaves."""
        return self._part("obs", "agent")

    @property
    def critic_space(self) -> spaces.Dict:
        """Space of the critic's leaves."""
        local = () if self.critic in ("state", "observations") else ("obs",)
        return self._part(*local, "agent", "critic")

    def _part(self, *keys: str) -> spaces.Dict:
        return spaces.Dict({key: self.space[key] for key in keys if key in self.space.spaces})

    def take(self, by_group: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the agents' rows (N * A, ...) from arrays (N, agents of the group, ...)."""
        chosen = by_group[self.group.name][:, list(self.columns)]
        return chosen.reshape(-1, *chosen.shape[2:])

    def see(self, obs: Mapping[str, Any], state: npt.NDArray[Any] | None) -> dict[str, Any]:
        """Return the leaves of N * A observations, the agents of env 0 first.

        Args:
            obs: by group, as in :class:`rlox.protocols.MultiAgentObs`.
            state: (N, ...) states of the envs.
        """
        columns = list(self.columns)
        own = map_leaves(
            lambda leaf: leaf[:, columns].reshape(-1, *leaf.shape[2:]), obs[self.group.name]
        )
        seen = _named("obs", own)
        rows = len(next(iter(seen.values())))
        if "agent" in self.space.spaces:
            seen["agent"] = np.tile(np.arange(len(columns)), rows // len(columns))
        if self.critic in ("state", "agent_state"):
            assert state is not None
            seen["critic"] = np.repeat(state, len(columns), axis=0)
        elif self.critic == "observations":
            for name, leaf in self._everything(obs).items():
                seen[name] = np.repeat(leaf, len(columns), axis=0)
        return {name: seen[name] for name in self.leaf_names}

    def see_one(self, obs: Any, column: int) -> dict[str, Any]:
        """Return the leaves of B observations of one agent, with a blank critic leaf.

        Args:
            obs: (B, *shape), or a dict of such arrays by leaf name for a nested space.
            column: the agent's index within the policy.
        """
        seen = _named("obs", obs)
        size = len(next(iter(seen.values())))
        if "agent" in self.space.spaces:
            seen["agent"] = np.full(size, column)
        return {**self.rows.blank(size), **seen}

    @property
    def leaf_names(self) -> list[str]:
        """Names of the leaves, in the order of the space."""
        return list(leaf_spaces(self.space))

    def _everything(self, obs: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        if isinstance(self.space["critic"], spaces.Box):
            return {"critic": see_team(self.groups, obs, None)}
        leaves = {}
        for group in self.groups:
            for column, agent in enumerate(group.agents):
                for name, leaf in _named(f"critic.{agent}", obs[group.name]).items():
                    leaves[name] = leaf[:, column]
        return leaves


def _named(name: str, obs: Any) -> dict[str, Any]:
    """Return an observation's leaves, with ``name`` as the prefix of their names."""
    return {f"{name}.{k}": v for k, v in obs.items()} if isinstance(obs, dict) else {name: obs}


def make_views(
    env: MultiAgentVecEnv | TeamPreprocessor, critic: str, share: str
) -> tuple[PolicyView, ...]:
    """Return a view for each policy of a team.

    Args:
        env: supplies groups and state space; a preprocessor supplies the preprocessed ones.
        critic: kind of the critic.
        share: ``"group"`` for one policy per group of equal spaces, ``"agent"`` for one per agent,
            or agent names, with ``,`` within a policy and ``;`` between policies.

    Raises:
        ConfigError: the critic needs a state and the env has none; or ``share`` does not name each
            agent once, or puts agents with different spaces together.
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
    """Return the name and columns of each policy in a group."""
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
    """Return the space of a team's state, else of all its observations as one vector.

    Raises:
        ConfigError: there is no state, and not all observations are a ``Box`` (images excluded).
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
    """Return (N, *shape) in :func:`team_space`; arguments as for :meth:`PolicyView.see`."""
    if state is not None:
        return np.array(state)
    n_envs = len(obs[groups[0].name])
    parts = [np.reshape(obs[group.name], (n_envs, -1)) for group in groups]
    return np.concatenate(parts, axis=1, dtype=np.float32)


def _all_observations(groups: tuple[AgentGroup, ...]) -> Space:
    """Return the space of all observations: one vector if all are plain boxes, else leaves."""
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


class TeamPreprocessor:
    """Normalises a team's observations, and stacks the last few observations of each agent.

    It has a :class:`rlox.envs.preprocessing.Preprocessor` per group and one for the state. A
    group's agents share their moments, taken from the observations that agents acted on. A stack
    holds the observations that the agent itself acted on and the current one: an agent that waits
    for its turn or has not joined adds none, and its first action in an episode begins a stack.
    The state is not stacked.

    Args:
        env: supplies groups and state space.
        normalize: normalise every float ``Box`` in observations and state.
        frame_stack: number of frames; 1 stacks nothing.

    Raises:
        ConfigError: there is nothing to normalise.
        SpaceError: the frames cannot be stacked.
    """

    def __init__(self, env: MultiAgentVecEnv, *, normalize: bool, frame_stack: int) -> None:
        can = {group.name: _has_floats(group.observation_space) for group in env.groups}
        if normalize and not any(can.values()):
            raise ConfigError(
                "normalize_observations: no observation of the agents has a Box of floats; leave "
                "it out"
            )
        self.possible_agents = env.possible_agents
        """Names of all agents, in the env's order."""
        self.by_group = {
            group.name: Preprocessor(
                group.observation_space,
                normalize=normalize and can[group.name],
                frame_stack=frame_stack,
            )
            for group in env.groups
        }
        """Preprocessor per group."""
        self.has_frames = any(one.has_frames for one in self.by_group.values())
        """Whether network inputs include earlier frames."""
        self.normalizes = any(one.moments for one in self.by_group.values())
        """Whether observations are normalised."""
        self.groups: tuple[AgentGroup, ...] = tuple(
            replace(group, observation_space=self.by_group[group.name].space)
            for group in env.groups
        )
        """The env's groups, with preprocessed observation spaces."""
        self.state_space: gymnasium.Space[Any] | None = env.state_space
        """Space of the preprocessed state."""
        self._state: Preprocessor | None = None
        if normalize and env.state_space is not None and _has_floats(env.state_space):
            self._state = Preprocessor(env.state_space, normalize=True, frame_stack=1)
            self.state_space = self._state.space
        self._frames: Frames | None = None

    def reset(self, shown: MultiAgentObs) -> MultiAgentObs:
        """Take in the first observations of N envs; return them preprocessed."""
        self._take_in(shown)
        seen, self._frames = self.see(shown, None, None)
        return seen

    def step(self, step: MultiAgentStep) -> MultiAgentStep:
        """Take in a step of N envs; return it with preprocessed observations."""
        self._take_in(step)
        final = {
            name: self._rows(name, step["final_obs"][name], self._frames)[0]
            for name in self.by_group
        }
        final_state = step["final_state"]
        if self._state is not None and final_state is not None:
            final_state = self._state.begin(final_state)
        seen, self._frames = self.see(step, self._frames, step["episode_ended"])
        return {**step, **seen, "final_obs": final, "final_state": final_state}

    def see(
        self, shown: MultiAgentObs, frames: Frames | None, starts: npt.NDArray[np.bool_] | None
    ) -> tuple[MultiAgentObs, Frames | None]:
        """Return the preprocessed observations of N envs and the next frames; update no moments.

        ``frames`` come from this method's call for the previous step, or are ``None`` if all
        episodes begin; (N,) ``starts`` is True where an episode begins.
        """
        obs, after = {}, {}
        for name in self.by_group:
            obs[name], rows, known = self._rows(name, shown["obs"][name], frames, starts)
            if not self.has_frames:
                continue
            active = shown["active"][name].reshape(-1)
            kept = rows if frames is None else frames[name]["seen"]

            def newest(old: Any, new: Any, on: Any = active) -> Any:
                return np.where(on.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

            after[name] = {"seen": map_leaves(newest, kept, rows), "known": known | active}
        state = shown["state"]
        if self._state is not None and state is not None:
            state = self._state.begin(state)
        seen: MultiAgentObs = {
            "obs": obs, "active": shown["active"], "masks": shown["masks"], "state": state,
        }  # fmt: skip
        return seen, after if self.has_frames else None

    def _rows(
        self,
        name: str,
        obs: Any,
        frames: Frames | None,
        starts: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[Any, Any, npt.NDArray[np.bool_]]:
        """Return the preprocessed (N, A, ...), as rows (N * A, ...), and who has acted before."""
        first = next(iter(obs.values())) if isinstance(obs, dict) else obs
        n_envs, n_agents = first.shape[:2]
        flat = map_leaves(lambda leaf: leaf.reshape(n_envs * n_agents, *leaf.shape[2:]), obs)
        known = np.zeros(n_envs * n_agents, np.bool_)
        if frames is not None:
            known = frames[name]["known"].copy()
            if starts is not None:
                known &= ~np.repeat(starts, n_agents)
        before = None if frames is None else frames[name]["seen"]
        rows = self.by_group[name].see(flat, before, ~known)
        shaped = map_leaves(lambda leaf: leaf.reshape(n_envs, n_agents, *leaf.shape[1:]), rows)
        return shaped, rows, known

    def _take_in(self, shown: MultiAgentObs) -> None:
        for name, one in self.by_group.items():
            active = shown["active"][name]
            if active.any():
                one.take_in(map_leaves(lambda leaf, on=active: leaf[on], shown["obs"][name]))
        if self._state is not None:
            self._state.take_in(shown["state"])

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """At the block's end, share each rank's new moments among all ranks."""
        with ExitStack() as shared:
            for one in (*self.by_group.values(), *filter(None, [self._state])):
                shared.enter_context(one.sharing())
            yield

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and the frames of the running episodes."""
        frames = {} if self._frames is None else map_nested(np.array, self._frames)
        return {
            "groups": {name: one.state_dict() for name, one in self.by_group.items()},
            "state": {} if self._state is None else self._state.state_dict(),
            "frames": frames,
        }

    def load_state_dict(self, state: Mapping[str, Any], *, keep_frames: bool) -> None:
        """Restore the moments and, with ``keep_frames``, the frames."""
        for name, one in self.by_group.items():
            one.load_state_dict(state["groups"][name])
        if self._state is not None:
            self._state.load_state_dict(state["state"])
        self._frames = None
        if keep_frames and state["frames"]:
            self._frames = map_nested(np.array, state["frames"])


def _has_floats(space: gymnasium.Space[Any]) -> bool:
    return any(
        isinstance(leaf, spaces.Box) and leaf.dtype is not None and leaf.dtype.kind == "f"
        for leaf in leaf_spaces(space).values()
    )
