"""Actions of a team's policies for users and evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.config.model import UNSET
from rlox.deployment import TeamData
from rlox.networks.predict import drawing_from, predict, predict_with_memory
from rlox.nn import layer_data
from rlox.protocols import MultiAgentObs, MultiAgentVecEnv
from rlox.spaces import (
    ActionRows,
    ObservationRows,
    agent_numbers,
    map_leaves,
    predict_each,
    remembered,
)
from torch import Tensor

from rlox_marl.collector import gather_actions
from rlox_marl.exporting import team_data
from rlox_marl.preprocessing import TeamPreprocessor
from rlox_marl.shown import read_state, require_shown
from rlox_marl.views import PolicyView

__all__ = ["TeamActor"]


class TeamActor:
    """The policies of a team, to act with.

    Args:
        views: of the policies.
        policies: by the views' names.
        env: says what the agents are shown.
        generator: source of samples, so that acting disturbs no training.
        device: where the policies are.
        preprocessor: of what the agents are shown; ``None`` changes nothing.
        remembers_rests: whether a memory goes on while its agent rests, as in the replayed
            sequences of action values.
    """

    def __init__(
        self,
        views: tuple[PolicyView, ...],
        policies: Mapping[str, Any],
        env: MultiAgentVecEnv,
        generator: torch.Generator,
        device: torch.device,
        *,
        preprocessor: TeamPreprocessor | None = None,
        remembers_rests: bool = False,
    ) -> None:
        self.remembers_rests = remembers_rests
        """Whether a memory goes on while its agent rests."""
        self._views, self._policies, self._order = views, policies, env.possible_agents
        self._groups = env.groups
        seen = {"state", "agent_state"} & {view.critic for view in views}
        self._state_space = env.state_space if seen else None
        self._spaces = {group.name: group.observation_space for group in env.groups}
        self._preprocessor = preprocessor
        self._generator, self._device = generator, device
        self._agents = {
            agent: (view, column) for view in views for column, agent in enumerate(view.agents)
        }
        self._stacks = preprocessor is not None and preprocessor.has_frames
        self._memories = {
            view.name: (len(view.columns), size)
            for view in views
            if (size := getattr(policies[view.name], "state_size", 0))
        }
        self._unseen = {view.name: _unseen(view) for view in views}

    @property
    def has_memory(self) -> bool:
        """Whether the policies or the stacks of frames remember anything."""
        return self._stacks or bool(self._memories)

    def predict(
        self,
        obs: Any,
        deterministic: bool,
        agent_idx: Any,
        *,
        state: Any = UNSET,
        episode_start: npt.ArrayLike | None = None,
        action_masks: npt.ArrayLike | None = None,
    ) -> Any:
        """Return an action of one agent for one observation, or actions for a batch.

        Args:
            obs: one observation or a batch (B, *shape) as the env gives it to the agent.
            deterministic: the mode of the action distribution rather than a sample.
            agent_idx: which of the env's agents, or (B,) of them for a batch.
            state: of one agent's memory: what this method returned with the last actions, ``None``
                at the beginning. If it is left out, each observation is an episode's first.
            episode_start: bool or (B,) bools, whether an episode begins with the observation.
            action_masks: see :func:`rlox.networks.predict.predict`.

        Returns:
            The action or actions; if ``state`` is given, a pair of them and the next state.

        Raises:
            ValueError: there is no agent of that number, or ``state`` is of several agents.
        """
        numbers = agent_numbers(agent_idx, self._order)
        if not numbers.ndim:
            before = {} if state is UNSET else remembered(state)
            actions, after = self._predict_one(
                int(numbers), obs, deterministic, action_masks, before, episode_start
            )
            return actions if state is UNSET else (actions, after)
        if state is not UNSET and self.has_memory:
            raise ValueError("state is of one agent; call predict once for each agent_idx")

        def predict_one(number: int, some: Any, masks: Any) -> Any:
            return self._predict_one(number, some, deterministic, masks, {}, None)[0]

        actions = predict_each(numbers, predict_one, obs, action_masks)
        return actions if state is UNSET else (actions, None)

    def _predict_one(
        self,
        number: int,
        obs: Any,
        deterministic: bool,
        masks: Any,
        before: Mapping[str, Any],
        episode_start: npt.ArrayLike | None,
    ) -> tuple[Any, Any]:
        view, column = self._agents[self._order[number]]
        after: dict[str, Any] = {}

        def nest(batch: Any) -> dict[str, npt.NDArray[Any]]:
            seen = self._preprocessor
            if seen is not None:
                batch = seen.see_agent(view.group.name, batch, before.get("frames"), episode_start)
                if seen.has_frames:
                    after["frames"] = batch
            named = (
                {f"obs.{k}": v for k, v in batch.items()}
                if isinstance(batch, dict)
                else {"obs": batch}
            )
            size = len(next(iter(named.values())))
            unseen = self._unseen[view.name]
            more = {name: np.repeat(leaf, size, axis=0) for name, leaf in unseen.items()}
            if "agent" in view.space.spaces:
                more["agent"] = np.full(size, column)
            return {**named, **more}

        common: dict[str, Any] = {
            "action_masks": masks,
            "preprocess": nest,
            "generator": self._generator,
            "device": self._device,
        }
        asked = (
            self._policies[view.name],
            self._spaces[view.group.name],
            view.group.action_space,
            obs,
            deterministic,
        )
        if getattr(asked[0], "state_size", 0):
            actions, after["memory"] = predict_with_memory(
                *asked, state=before.get("memory"), episode_start=episode_start, **common
            )
        else:
            actions = predict(*asked, **common)
        return actions, after or None

    def policy_data(self, algorithm: str) -> TeamData:
        """Return the policies as data; see :class:`rlox.deployment.Exportable`.

        Args:
            algorithm: registered name of what trained them.
        """
        return team_data(
            algorithm,
            [(view, layer_data(self._policies[view.name])) for view in self._views],
            self._order,
            self._spaces,
            self._preprocessor,
            remembers_rests=self.remembers_rests,
        )

    def seen(self, view: PolicyView, shown: MultiAgentObs) -> tuple[Any, tuple[Tensor, ...]]:
        """Return the leaves of a view's N * A rows on the device, and their masks if there are any.

        Args:
            view: of one policy.
            shown: by N envs.
        """
        stored = ObservationRows(view.space).stored(view.see(shown["obs"], shown["state"]))
        leaves = map_leaves(lambda leaf: torch.from_numpy(leaf).to(self._device), stored)
        if view.group.name not in shown["masks"]:
            return leaves, ()
        masks = np.ascontiguousarray(view.take(shown["masks"]))
        return leaves, (torch.from_numpy(masks).to(self._device),)

    @torch.no_grad()
    def predict_team(
        self,
        obs: MultiAgentObs,
        deterministic: bool = True,
        *,
        state: Any = UNSET,
        episode_start: npt.NDArray[np.bool_] | None = None,
    ) -> Any:
        """Return the actions of all agents, by group; see :class:`rlox.envs.playing.TeamPlayer`.

        Args:
            obs: of N envs.
            deterministic: the mode of the action distribution rather than a sample.
            state: what the agents remember: what this method returned with the last actions,
                ``None`` at the beginning. If it is left out, all episodes begin.
            episode_start: (N,) whether an env's episode begins; ``None`` if none does.

        Returns:
            The actions; if ``state`` is given, a pair of them and the next state.

        Raises:
            ValueError: the observations are not of the team that was trained, or ``state`` or
                ``episode_start`` is of other envs.
        """
        require_shown(obs, self._groups, self._state_space)
        parts = []
        n_envs = len(next(iter(obs["active"].values())))
        state_or_none = None if state is UNSET else state
        given = read_state(state_or_none, episode_start, n_envs, self._memories, self._stacks)
        memories: dict[str, Tensor] = {}
        after: dict[str, Any] = {}
        if self._preprocessor is not None:
            obs, frames = self._preprocessor.see(obs, given.get("frames"), episode_start)
            after = {} if frames is None else {"frames": frames}
        for view in self._views:
            policy = self._policies[view.name]
            seen, masks = self.seen(view, obs)
            with drawing_from(self._generator, policy):
                if getattr(policy, "state_size", 0):
                    before = given["memory"][view.name] if given else None
                    memory = self._memory(view, n_envs, before, episode_start)
                    distribution, _, following = policy.step(seen, memory, *masks)
                    memories[view.name] = self._following(view, obs, memory, following)
                    sampled = None if deterministic else distribution.sample(self._generator)
                    rows = distribution.mode() if sampled is None else sampled[0]
                elif deterministic:
                    rows = policy.deterministic(seen, *masks)
                else:
                    rows = policy.get_action_and_logprob(seen, *masks)[0]
            parts.append((view, self.to_env(view, rows.cpu().numpy())))
        actions = gather_actions(parts, n_envs)
        if memories:
            after["memory"] = memories
        return actions if state is UNSET else (actions, after or None)

    def to_env(self, view: PolicyView, rows: npt.NDArray[Any]) -> Any:
        """Return a view's actions as the env takes them, of rows (N * A, ...)."""
        return ActionRows(view.group.action_space).to_env(rows)

    def _memory(
        self,
        view: PolicyView,
        n_envs: int,
        before: Tensor | None,
        episode_start: npt.NDArray[np.bool_] | None,
    ) -> Tensor:
        """Return the memory (N * A, state_size) with which a step begins."""
        size = self._policies[view.name].state_size
        if before is None:
            return torch.zeros(n_envs * len(view.columns), size, device=self._device)
        if episode_start is None:
            return before
        begins = torch.from_numpy(np.repeat(episode_start, len(view.columns))).to(self._device)
        return before.masked_fill(begins.unsqueeze(-1), 0.0)

    def _following(
        self, view: PolicyView, obs: MultiAgentObs, before: Tensor, after: Tensor
    ) -> Tensor:
        """Return the memory after a step, in which agents that rest remember nothing new."""
        acts = view.take(obs["active"])
        if acts.all() or self.remembers_rests:
            return after
        rows = torch.from_numpy(acts).to(self._device)
        return torch.where(rows.unsqueeze(-1), after, before)


def _unseen(view: PolicyView) -> dict[str, npt.NDArray[Any]]:
    """Return one row that shows nothing of the leaves that only the critic sees."""
    rows: Any = ObservationRows(view.space).blank(1)
    return {
        name: leaf for name, leaf in rows.items() if name == "critic" or name.startswith("critic.")
    }
