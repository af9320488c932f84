"""Base of the algorithms of several agents: their envs, acting for users, and policy files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from rlox.algorithm import Algorithm
from rlox.config.model import UNSET
from rlox.deployment import PolicyData, TeamData
from rlox.envs import fixed_env_count, is_team, make_team_env
from rlox.envs.gymnasium import require_team_step
from rlox.envs.running import SHOWN_KEYS
from rlox.errors import ConfigError, EnvError
from rlox.networks.predict import drawing_from, predict, predict_with_memory
from rlox.nn import layer_data, torch_threads
from rlox.protocols import AgentGroup, MultiAgentObs, MultiAgentVecEnv
from rlox.spaces import map_leaves, predict_agents, remembered
from torch import Tensor

from rlox_marl.collector import gather_actions
from rlox_marl.views import PolicyView, TeamPreprocessor

REMEMBERED = "must be None or what predict_team returned with the last actions"


class TeamAlgorithm(Algorithm):
    """An algorithm of several agents; base of the rollout and the replay frame.

    A frame's constructor sets the attributes below and calls :meth:`_can_act`. All frames take:

    Args:
        env_id: env of several agents: a PettingZoo id, a callable that makes a PettingZoo env, such
            an env, or a :class:`rlox.protocols.MultiAgentVecEnv`.
        env_fn: makes a PettingZoo env; replaces ``env_id``.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :attr:`config_class`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for schedulable options; they override the
            config and are not saved.
        config_kwargs: config options, which override ``config``. ``n_agents``: number of agents,
            ``None`` takes the env's; ``n_envs``: number of envs stepped together, an env that
            cannot be copied sets its own; ``seed``: fixes every random draw, ``None`` takes one
            from entropy.

    Raises:
        ConfigError: an option is unknown, out of range, or contradicts the env.
        EnvError: the env cannot be built.
    """

    remembers_rests: ClassVar[bool] = False
    """Whether a memory keeps updating while its agent rests, as in replayed sequences."""
    views: tuple[PolicyView, ...]
    policies: Mapping[str, Any]
    """Policies by view name."""
    device: torch.device

    def _make_envs(self, **options: Any) -> MultiAgentVecEnv:
        """Return the envs; :meth:`close` frees those made here.

        Args:
            options: further arguments of :func:`rlox.envs.make_team_env`.

        Raises:
            ConfigError: ``n_agents`` differs from the env's.
            EnvError: the envs cannot be built.
        """
        cfg, source = self.config, self.env_source
        options["env_kwargs"] = cfg.env_kwargs or None
        env = make_team_env(source, n_envs=cfg.n_envs, backend=cfg.env_backend, **options)
        if fixed_env_count(source) is None:
            self.resources.callback(env.close)
        found = len(env.possible_agents)
        if cfg.n_agents not in (None, found):
            raise ConfigError(
                f"n_agents is {cfg.n_agents}, but the env has {found} agents "
                f"({', '.join(env.possible_agents)}); leave n_agents out, or change the env"
            )
        self.config = cfg.replace(n_agents=found)
        return env

    def _can_act(self, env: MultiAgentVecEnv, preprocessor: TeamPreprocessor | None = None) -> None:
        """Keep what predictions need from the env and from the preprocessor."""
        self._env, self._preprocessor = env, preprocessor
        self._spaces = {group.name: group.observation_space for group in env.groups}
        seen = {"state", "agent_state"} & {view.critic for view in self.views}
        self._seen_state = env.state_space if seen else None
        self._agents = {
            agent: (view, column) for view in self.views for column, agent in enumerate(view.agents)
        }
        self._stacks = preprocessor is not None and preprocessor.has_frames
        self._memories = {
            view.name: (len(view.columns), size)
            for view in self.views
            if (size := getattr(self.policies[view.name], "state_size", 0))
        }

    def predict(
        self,
        obs: Any,
        deterministic: bool = True,
        agent_idx: int | npt.ArrayLike = 0,
        *,
        state: Any = UNSET,
        episode_start: npt.ArrayLike | None = None,
        action_masks: npt.ArrayLike | None = None,
    ) -> Any:
        """Return an action of one agent, actions for a batch, or actions by agent.

        Args:
            obs: one observation or a batch (B, *shape), as the env gives it to the agent; or
                PettingZoo's dict of observations by agent name: then ``state``, ``action_masks``
                and the result are such dicts too.
            deterministic: return the distribution's mode or the highest-valued action, instead of
                a sample or an ε-greedy action.
            agent_idx: index of the agent in the env's order; or (B,) indices; unused for a dict.
            state: one agent's memory as returned with its last actions; ``None`` at the beginning.
                If left out, each observation counts as the first of an episode.
            episode_start: bool or (B,) bools, True where the observation begins an episode.
            action_masks: see :func:`rlox.networks.predict.predict`.

        Returns:
            The action or actions; if ``state`` is given, a pair of actions and next state.

        Raises:
            ValueError: no agent has that index, or ``state`` comes with several agents.
        """
        actions, after = predict_agents(
            self._env.possible_agents, partial(self._predict_one, deterministic), obs, agent_idx,
            action_masks, None if state is UNSET else state, episode_start,
            remembers=state is not UNSET and bool(self._stacks or self._memories),
        )  # fmt: skip
        return actions if state is UNSET else (actions, after)

    def _predict_one(
        self, deterministic: bool, number: int, obs: Any, masks: Any, state: Any, starts: Any
    ) -> tuple[Any, Any]:
        before = remembered(state)
        view, column = self._agents[self._env.possible_agents[number]]
        after: dict[str, Any] = {}

        def nest(batch: Any) -> dict[str, Any]:
            seen = self._preprocessor
            if seen is not None:
                passed = seen.by_group[view.group.name]
                batch = passed.see(batch, before.get("frames"), starts)
                if seen.has_frames:
                    after["frames"] = batch
            return view.see_one(batch, column)

        policy, group = self.policies[view.name], view.group
        asked = policy, self._spaces[group.name], group.action_space, obs, deterministic
        common: dict[str, Any] = {"action_masks": masks, "preprocess": nest, "device": self.device}
        common["generator"] = self.streams.torch("predict")
        with torch_threads(self.config.torch_threads):
            if view.name in self._memories:
                actions, after["memory"] = predict_with_memory(
                    *asked, state=before.get("memory"), episode_start=starts, **common
                )
            else:
                actions = predict(*asked, **common)
        return actions, after or None

    @torch.no_grad()
    def predict_team(
        self,
        obs: MultiAgentObs,
        deterministic: bool = True,
        *,
        state: Any = UNSET,
        episode_start: npt.NDArray[Any] | None = None,
    ) -> Any:
        """Return the actions of all agents, by group; see :class:`rlox.envs.evaluation.TeamPlayer`.

        Args:
            obs: observations of N envs.
            deterministic: as in :meth:`predict`.
            state: the agents' memories, as in :meth:`predict`.
            episode_start: (N,) True where an env's episode begins; ``None`` if none does.

        Returns:
            The actions; if ``state`` is given, a pair of actions and next state.

        Raises:
            ValueError: the observations do not fit the trained team, or ``state`` or
                ``episode_start`` does not fit the N envs.
        """
        require_shown(obs, self._env.groups, self._seen_state)
        parts, generator = [], self.streams.torch("predict")
        n_envs = len(next(iter(obs["active"].values())))
        given = self._read_state(None if state is UNSET else state, episode_start, n_envs)
        memories: dict[str, Tensor] = {}
        after: dict[str, Any] = {}
        if self._preprocessor is not None:
            obs, frames = self._preprocessor.see(obs, given.get("frames"), episode_start)
            after = {} if frames is None else {"frames": frames}
        for view in self.views:
            policy = self.policies[view.name]
            seen, masks = self._seen(view, obs)
            with torch_threads(self.config.torch_threads), drawing_from(generator, policy):
                if view.name in self._memories:
                    before = given["memory"][view.name] if given else None
                    memory = self._memory_of(view, n_envs, before, episode_start)
                    distribution, _, following = policy.step(seen, memory, *masks)
                    memories[view.name] = self._following(view, obs, memory, following)
                    sampled = None if deterministic else distribution.sample(generator)
                    rows = distribution.mode() if sampled is None else sampled[0]
                elif deterministic:
                    rows = policy.deterministic(seen, *masks)
                else:
                    rows = policy.get_action_and_logprob(seen, *masks)[0]
            parts.append((view, view.actions.to_env(rows.cpu().numpy())))
        actions = gather_actions(parts, n_envs)
        if memories:
            after["memory"] = memories
        return actions if state is UNSET else (actions, after or None)

    def _read_state(self, state: Any, episode_start: Any, n_envs: int) -> Mapping[str, Any]:
        """Check a user's state for the agents of N envs, and return it; ``{}`` for ``None``."""
        if episode_start is not None and np.shape(episode_start) != (n_envs,):
            raise ValueError(
                f"episode_start must have shape ({n_envs},), got {np.shape(episode_start)}"
            )
        if state is None:
            return {}
        names = ["frames"] * self._stacks + ["memory"] * bool(self._memories)
        if not isinstance(state, Mapping) or list(state) != names:
            got = list(state) if isinstance(state, Mapping) else type(state).__name__
            raise ValueError(f"state {REMEMBERED}, a dict of {names}, got {got}")
        for name, (n_agents, size) in self._memories.items():
            shape = n_envs * n_agents, size
            found: Any = state["memory"].get(name) if isinstance(state["memory"], Mapping) else None
            if np.shape(found) != shape:
                raise ValueError(
                    f"state {REMEMBERED}: the memory of policy '{name}' must have shape {shape}, "
                    f"got {None if found is None else tuple(np.shape(found))}"
                )
        return state

    def _memory_of(
        self,
        view: PolicyView,
        n_envs: int,
        before: Tensor | None = None,
        episode_start: npt.NDArray[np.bool_] | None = None,
    ) -> Tensor:
        """Return the memory (N * A, state_size) before a step: zeros at first."""
        size = self.policies[view.name].state_size
        if before is None:
            return torch.zeros(n_envs * len(view.columns), size, device=self.device)
        if episode_start is None:
            return before
        begins = torch.from_numpy(np.repeat(episode_start, len(view.columns))).to(self.device)
        return before.masked_fill(begins.unsqueeze(-1), 0.0)

    def _following(
        self, view: PolicyView, obs: MultiAgentObs, before: Tensor, after: Tensor
    ) -> Tensor:
        """Return the memory after a step; resting agents keep theirs unchanged."""
        acts = view.take(obs["active"])
        if acts.all() or self.remembers_rests:
            return after
        rows = torch.from_numpy(acts).to(self.device)
        return torch.where(rows.unsqueeze(-1), after, before)

    def _seen(self, view: PolicyView, shown: MultiAgentObs) -> tuple[Any, tuple[Tensor, ...]]:
        """Return the leaves of a view's N * A rows on the device, and any masks."""
        stored = view.rows.stored(view.see(shown["obs"], shown["state"]))
        leaves = map_leaves(lambda leaf: torch.from_numpy(leaf).to(self.device), stored)
        if view.group.name not in shown["masks"]:
            return leaves, ()
        masks = np.ascontiguousarray(view.take(shown["masks"]))
        return leaves, (torch.from_numpy(masks).to(self.device),)

    def policy_data(self) -> TeamData:
        """Return the policies as data; see :class:`rlox.deployment.Exportable`."""
        seen = self._preprocessor
        policies = {
            view.name: PolicyData(
                algorithm=self.name,
                observation_space=self._spaces[view.group.name],
                action_space=view.group.action_space,
                network=layer_data(self.policies[view.name]),
                preprocessor=None if seen is None else seen.by_group[view.group.name],
                takes_masks=view.actions.mask_size > 0,
            )
            for view in self.views
        }
        places = {agent: (view.name, column) for agent, (view, column) in self._agents.items()}
        return TeamData(
            algorithm=self.name,
            policies=policies,
            agents={agent: places[agent] for agent in self._env.possible_agents},
            groups={view.group.name: view.group.agents for view in self.views},
            remembers_rests=self.remembers_rests,
        )


def has_team(source: Any, config: Any) -> bool:
    """Return whether an env, made with the config's options, has several agents.

    Raises:
        ConfigError: there is no env.
    """
    if source is None:
        raise ConfigError("there is no env; pass its id or a callable as env_id, or env_fn=")
    return is_team(source, backend=config.env_backend, env_kwargs=config.env_kwargs or None)


def require_shown(
    obs: Any, groups: Sequence[AgentGroup], state_space: gymnasium.Space[Any] | None
) -> None:
    """Refuse observations that N envs with these groups cannot show.

    Args:
        obs: should be a :class:`rlox.protocols.MultiAgentObs`.
        groups: groups of the training env.
        state_space: space of the state that critics or the mixing see; ``None`` if they see none.

    Raises:
        ValueError: a field, group or agent is missing or has another shape; the message names
            it.
    """
    try:
        n_envs = len(obs["active"][groups[0].name])
    except (LookupError, TypeError):
        n_envs = 1  # refused below
    team: Any = SimpleNamespace(groups=groups, n_envs=n_envs)
    try:
        require_team_step(obs, team, SHOWN_KEYS, "step_all")
    except EnvError as error:
        agents = " and ".join(f"'{group.name}' of {', '.join(group.agents)}" for group in groups)
        raise ValueError(
            f"obs must be what envs of the trained team, {agents}, show: {error}"
        ) from None
    if state_space is not None and np.shape(obs["state"]) != (n_envs, *(state_space.shape or ())):
        shape = None if obs["state"] is None else np.shape(obs["state"])
        raise ValueError(
            f"obs['state'] must have shape {(n_envs, *(state_space.shape or ()))} of the space "
            f"{state_space}, got {shape}"
        )
