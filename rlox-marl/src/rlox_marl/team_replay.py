"""Replay of teams: one row per env step, and batches of sequences of rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.errors import EnvError
from rlox.protocols import MultiAgentStep
from rlox.replay.buffers import SequenceOptions, make_sequence_buffer
from rlox.replay.loop import Replay, UpdatesDue
from rlox.spaces import ObservationRows
from rlox.training.hooks import Hooks, Progress
from torch import Tensor

from rlox_marl.action_values import Mixing
from rlox_marl.collector import RunningTeams
from rlox_marl.configs import TeamValueConfig
from rlox_marl.views import PolicyView, see_team

Array = npt.NDArray[Any]
Acted = tuple[dict[str, Array], dict[str, Any]]
"""What the policies did in N envs: first the row fields ``actions`` (N, agents) and the memories
before the step, then the actions by group, in the env's format."""


@dataclass(frozen=True)
class TeamSequences:
    """Sequences of T steps from B envs; A counts all agents in view order, or one view's agents."""

    obs: dict[str, dict[str, Tensor]]
    """By view, leaves (T, B, A, *shape)."""
    next_obs: dict[str, dict[str, Tensor]]
    """Observations after the steps, shaped as ``obs``; true final observations at episode ends."""
    next_masks: dict[str, Tensor]
    """By view with masks, (T, B, A, actions) bool, the masks at ``next_obs``."""
    memory: dict[str, Tensor]
    """By view, (B, A, size) before the first step; size 0 without memories."""
    starts: Tensor
    """(T, B) bool, True for the first observation of an episode."""
    actions: Tensor
    """(T, B, A) int64."""
    rewards: Tensor
    """(T, B, A) float32, each agent's own."""
    active: Tensor
    """(T, B, A) bool, True for agents that acted."""
    terminated: Tensor
    """(T, B, A) bool, True for agents that terminated."""
    next_active: Tensor
    """(T, B, A) bool, the agents whose values count after the step: the next to act, and the
    truncated ones."""
    state: Tensor | None
    """(T, B, *shape) team states; ``None`` if the mixing does not use them."""
    next_state: Tensor | None
    """(T, B, *shape) team states after the steps."""


class TeamReplay(Replay):
    """N running envs of several agents, the rows of their steps, and the due updates.

    Args:
        envs: the running envs.
        views: the policies' views.
        config: the algorithm's.
        clock: the run's clock.
        mixing: decides whether rows hold a state; agents may wait unless each learns on its own.
        seed: fixes the draws.
    """

    def __init__(
        self,
        envs: RunningTeams,
        views: tuple[PolicyView, ...],
        config: TeamValueConfig,
        clock: Progress,
        *,
        mixing: Mixing,
        seed: int,
    ) -> None:
        self.envs, self.views = envs, views
        self.statistics = envs.statistics
        self.episode_start = np.ones(envs.n_envs, np.bool_)
        """(N,) True where an env shows the first observation of an episode."""
        self.config, self._mixing = config, mixing
        self._compares = not mixing.by_agent and "team_reward" not in config.model_fields_set
        self._order = [agent for view in views for agent in view.agents]
        asked = SequenceOptions(config.buffer_size, self._fields(), envs.n_envs, seed)
        buffer = make_sequence_buffer("sequence", asked)
        updates = UpdatesDue(config.gradient_steps, config.train_freq)
        super().__init__(envs, buffer, config.buffer_size, updates, clock, config)

    def _fields(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Return the shape and dtype of each field of a row."""
        masked, n_agents = self.envs.obs["masks"], len(self._order)
        fields: dict[str, tuple[tuple[int, ...], Any]] = {"start": ((), np.bool_)}
        for view in self.views:
            size = len(view.columns)
            leaves: dict[str, Array] = view.rows.empty(1)
            for name, leaf in leaves.items():
                if name != "agent":  # agent numbers are known without storing them
                    kept = (size, *leaf.shape[1:]), leaf.dtype
                    fields[f"obs {view.name} {name}"] = fields[f"next {view.name} {name}"] = kept
            if view.group.name in masked:
                n_actions = int(view.group.action_space.n)  # type: ignore[attr-defined]
                fields[f"masks {view.name}"] = ((size, n_actions), np.bool_)
            if self.config.n_remembered:
                fields[f"memory {view.name}"] = ((size, self.config.n_remembered), np.float32)
        fields["actions"] = ((n_agents,), np.int64)
        fields["rewards"] = ((n_agents,), np.float32)
        fields |= dict.fromkeys(("active", "terminated", "next_active"), ((n_agents,), np.bool_))
        if self._mixing.state_space is not None:
            state: Any = ObservationRows(self._mixing.state_space).empty(1)
            fields["state"] = fields["next_state"] = (state.shape[1:], state.dtype)
        return fields

    def step(self, act: Callable[[npt.NDArray[np.bool_]], Acted], hooks: Hooks) -> None:
        """Let the policies act once in every env, and store the rows; see :meth:`count_step`.

        Args:
            act: maps (N,) episode starts to the policies' :data:`Acted` in the current envs.
            hooks: called after the vector step.
        """
        if not self.envs.started:  # a failed step may have cut episodes
            self.episode_start = np.ones(self.n_envs, np.bool_)
        shown = self.envs.obs
        acted, actions = act(self.episode_start)
        rows = {"start": self.episode_start, **acted}
        rows |= self._seen("obs", shown["obs"], shown["state"])
        rows["active"] = active = self._side_by_side(shown["active"])
        step = self.envs.step(actions)
        rows |= self._outcome(step, active)
        self.buffer.push(rows, np.arange(self.n_envs))
        self.episode_start = step["episode_ended"].copy()
        self.count_step(self.n_envs, hooks)

    def can_draw(self) -> bool:
        """Return whether sequences can be drawn, which begin after a stream's first row."""
        return bool(self._stored // self.n_envs > self.config.length)

    def _outcome(self, step: MultiAgentStep, active: Array) -> dict[str, Array]:
        ended = step["episode_ended"][:, None]
        terminated = self._side_by_side(step["terminated"])
        truncated = self._side_by_side(step["truncated"]) & ~terminated
        goes_on = self._side_by_side(step["active"]) & ~ended
        next_active = goes_on | truncated
        waits = active & ~(terminated | truncated | next_active)
        if waits.any() and self._mixing.by_agent:
            env, agent = np.argwhere(waits)[0]
            raise EnvError(
                f"the agent '{self._order[agent]}' of env {env} waits for its turn, which agents "
                "that learn for themselves from single steps may not; take vdn, qmix, ippo or mappo"
            )
        rewards = self._side_by_side(step["rewards"])
        if self._compares:
            self._compare(rewards, active)
        rows = {
            **self._seen("next", step["final_obs"], step["final_state"]),
            "rewards": rewards.astype(np.float32),
            "terminated": terminated,
            "next_active": next_active,
        }
        masks = step.get("final_masks")
        if masks is None:
            masks = {name: rows | ended[..., None] for name, rows in step["masks"].items()}
        for view in self.views:
            if view.group.name in masks:
                rows[f"masks {view.name}"] = masks[view.group.name][:, list(view.columns)]
        return rows

    def _compare(self, rewards: Array, active: Array) -> None:
        """Warn once if a step pays the agents of an env differently; who rests counts if paid."""
        different = rewards != rewards[:, :1]
        for env in np.flatnonzero(different.any(1)):
            counts = np.flatnonzero(active[env] | (rewards[env] != 0))
            if np.ptp(rewards[env, counts]):
                self._compares = False
                paid = ", ".join(f"{self._order[k]} {rewards[env, k]:g}" for k in counts)
                logging.getLogger("rlox").warning(
                    "agents are paid differently (%s), and the team learns from the %s of their "
                    "rewards; take independent_q, ippo or mappo to learn from each agent's own, or "
                    "give team_reward to keep one for the team",
                    paid,
                    self.config.team_reward,
                )
                return

    def _seen(self, prefix: str, obs: Mapping[str, Any], state: Array | None) -> dict[str, Array]:
        """Return the row fields of the views' observations and, if kept, of the team's state."""
        rows = {}
        for view in self.views:
            shape = self.env.n_envs, len(view.columns)
            for name, leaf in view.see(obs, None).items():
                if name != "agent":
                    rows[f"{prefix} {view.name} {name}"] = leaf.reshape(*shape, *leaf.shape[1:])
        if self._mixing.state_space is not None:
            key = "state" if prefix == "obs" else "next_state"
            rows[key] = see_team(self.env.groups, obs, state)
        return rows

    def _side_by_side(self, by_group: Mapping[str, Array]) -> Array:
        """Return the (N, agents) values of all views from (N, A) arrays by group."""
        parts = [by_group[view.group.name][:, list(view.columns)] for view in self.views]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def draw(self) -> TeamSequences:
        """Return a batch from the buffer."""
        drawn = self.buffer.sample(self.config.batch_size, self.config.length)
        names = [name for name in drawn if name != "indices"]
        arrays = {name: np.ascontiguousarray(drawn[name][:, 1:].swapaxes(0, 1)) for name in names}
        steps = {name: torch.from_numpy(rows).to(self.device) for name, rows in arrays.items()}
        sizes = {view.name: (self.config.batch_size, len(view.columns), 0) for view in self.views}
        nothing = {name: torch.zeros(size, device=self.device) for name, size in sizes.items()}
        kept = ("actions", "rewards", "active", "terminated", "next_active")
        return TeamSequences(
            obs={view.name: self._leaves(steps, "obs", view) for view in self.views},
            next_obs={view.name: self._leaves(steps, "next", view) for view in self.views},
            next_masks={n: steps[f"masks {n}"] for n in sizes if f"masks {n}" in steps},
            memory={n: steps.get(f"memory {n}", nothing[n][None])[0] for n in sizes},
            starts=steps["start"],
            **{name: steps[name] for name in kept},
            state=steps.get("state"),
            next_state=steps.get("next_state"),
        )

    def _leaves(self, steps: Mapping[str, Tensor], prefix: str, view: PolicyView) -> dict[str, Any]:
        leaves = {}
        for name in view.leaf_names:
            if name == "agent":
                numbers = torch.arange(len(view.columns), device=self.device)
                leaves[name] = numbers.expand(self.config.length, self.config.batch_size, -1)
            else:
                leaves[name] = steps[f"{prefix} {view.name} {name}"]
        return leaves

    def state_dict(self) -> dict[str, Any]:
        """Return the envs' state and, with ``save_replay_buffer``, the buffer."""
        return {**super().state_dict(), "episode_start": self.episode_start.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore the state; see :meth:`rlox.replay.loop.Replay.load_state_dict`."""
        exact = super().load_state_dict(state)
        self.episode_start[:] = state["episode_start"] if exact else True
        return exact
