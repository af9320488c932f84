"""Rollouts of teams: N envs of several agents stepped with their policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from rlox.batches.rollout import RolloutBatch, Unroll
from rlox.networks.predict import taking_masks
from rlox.preprocessing import RewardScaler
from rlox.protocols import MultiAgentObs, MultiAgentStep, RecurrentActor
from rlox.rollouts import EnvMemory, MemoryActor, UnrollWriter
from rlox.spaces import ActionRows, ObservationRows, map_nested

from rlox_marl.advantages import estimate_team_advantages
from rlox_marl.running import RunningTeams
from rlox_marl.self_play import OpponentPool
from rlox_marl.views import PolicyView

__all__ = ["MultiAgentCollector"]


class MultiAgentCollector:
    """Steps envs of several agents and returns a batch for each policy.

    A policy of A agents in N envs fills N * A columns, the agents of env 0 first.

    Args:
        envs: are stepped; they stay the caller's to close.
        views: of the policies.
        device: where the batches live.
        team_reward: what an agent learns from; see :class:`rlox_marl.configs.MAPPOConfig`.
        gamma: discount in [0, 1].
        gae_lambda: trace decay λ in [0, 1].
        normalize_rewards: divide what each policy learns from by the deviation of its agents'
            discounted returns, see :class:`rlox.preprocessing.RewardScaler`.
        pool: plays some sides of games of two; ``None``: the policies act for all agents.
    """

    def __init__(
        self,
        envs: RunningTeams,
        views: tuple[PolicyView, ...],
        *,
        device: str | torch.device = "cpu",
        team_reward: Literal["own", "mean", "sum"] = "own",
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        normalize_rewards: bool = False,
        pool: OpponentPool | None = None,
    ) -> None:
        self.envs = envs
        self.env = envs.env
        self.views = views
        self.statistics = envs.statistics
        self.device = torch.device(device)
        self.gamma, self.gae_lambda = gamma, gae_lambda
        self.pool = pool
        self._team_reward = team_reward
        self.reward_scalers = {
            view.name: RewardScaler(envs.env.n_envs * len(view.columns), gamma)
            for view in views
            if normalize_rewards
        }
        """By policy; none if rewards are not scaled."""
        self.memory: dict[str, EnvMemory] = {}
        """By policy, what its agents remember; none of policies without a memory."""
        self._rows = {view.name: ObservationRows(view.space) for view in views}
        self._actions = {view.name: ActionRows(view.group.action_space) for view in views}

    def collect(
        self,
        policies: Mapping[str, Any],
        n_steps: int,
        on_step: Callable[[int], None] | None = None,
    ) -> dict[str, RolloutBatch]:
        """Step every env ``n_steps`` times and estimate advantages; arguments as :meth:`unroll`.

        Returns:
            By policy, the steps in which its agents acted; without those that never did.
        """
        unrolls = self.unroll(policies, n_steps, on_step)
        batches = {}
        for name, (unroll, active) in unrolls.items():
            batch = estimate_team_advantages(
                unroll, active, policies[name], self.gamma, self.gae_lambda
            )
            if batch is not None:
                batches[name] = batch
        return batches

    @torch.no_grad()
    def unroll(
        self,
        policies: Mapping[str, Any],
        n_steps: int,
        on_step: Callable[[int], None] | None = None,
    ) -> dict[str, tuple[Unroll, npt.NDArray[np.bool_]]]:
        """Step every env ``n_steps`` times.

        Args:
            policies: by the views' names; each acts on the nested observations of its view.
            n_steps: steps T per env.
            on_step: called after each vector step with the number of env steps it took (N).

        Returns:
            By policy, T steps of its N * A columns, and which of them acted (T, N * A).

        Raises:
            ValueError: ``n_steps`` is not positive.
            EnvError: an env returned what is not finite.
            SpaceError: an env masks actions and the policy takes no masks.
        """
        if n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {n_steps}")
        if not self.envs.started:  # a failed step may have cut episodes
            self.memory = {}
            for scaler in self.reward_scalers.values():
                scaler.forget()
        writers, active = {}, {}
        acting = {
            name: self._remember(name, policy)
            for name, policy in policies.items()
            if isinstance(policy, RecurrentActor)
        }
        for view in self.views:
            columns = self.env.n_envs * len(view.columns)
            writers[view.name] = UnrollWriter(self._rows[view.name], n_steps, columns, self.device)
            active[view.name] = np.zeros((n_steps, columns), np.bool_)
        for t in range(n_steps):
            shown = self.envs.shown
            for view in self.views:
                active[view.name][t] = view.take(shown["active"])
                if self.pool is not None:
                    active[view.name][t] &= self.pool.learning.reshape(-1)
            now = {name: steps[t] for name, steps in active.items()}
            step = self.envs.step(self._act(policies, acting, writers, now, shown))
            self._add(writers, acting, now, step)
            if on_step is not None:
                on_step(self.env.n_envs)
        shown = self.envs.shown
        unrolls = {}
        for view in self.views:
            unroll = writers[view.name].unroll(view.see(shown["obs"], shown["state"]))
            memory = acting.get(view.name)
            unroll = unroll if memory is None else memory.complete(unroll)
            unrolls[view.name] = unroll, active[view.name]
        return unrolls

    def _remember(self, name: str, policy: RecurrentActor) -> MemoryActor:
        if name not in self.memory:
            (columns,) = (len(view.columns) for view in self.views if view.name == name)
            n = self.env.n_envs * columns
            self.memory[name] = EnvMemory.blank(n, policy.state_size, self.device)
        return MemoryActor(policy, self.memory[name])

    def memory_state(self) -> dict[str, Any]:
        """Return what the agents remember, by policy."""
        return {
            name: {key: part.cpu().numpy().copy() for key, part in vars(memory).items()}
            for name, memory in self.memory.items()
        }

    def load_memory_state(self, state: Mapping[str, Any]) -> None:
        """Restore it; policies that are left out forget all."""
        self.memory = {name: EnvMemory.of(parts, self.device) for name, parts in state.items()}

    def _act(
        self,
        policies: Mapping[str, Any],
        acting: Mapping[str, MemoryActor],
        writers: Mapping[str, UnrollWriter],
        active: Mapping[str, npt.NDArray[np.bool_]],
        shown: MultiAgentObs,
    ) -> dict[str, Any]:
        """Return the actions by group, and keep what the policies saw and did."""
        parts = []
        for view in self.views:
            writer, memory = writers[view.name], acting.get(view.name)
            row = writer.observe(view.see(shown["obs"], shown["state"]))
            act: Any
            if memory is None:
                act = policies[view.name].get_action_and_logprob
            else:
                acts = torch.from_numpy(active[view.name]).to(self.device)
                act = partial(memory.act, active=None if acts.all() else acts)
            given = None
            if view.group.name in shown["masks"]:
                act = act if writer.masked else taking_masks(act)
                masks = np.ascontiguousarray(view.take(shown["masks"]))
                given = writer.mask(masks)
                actions, log_probs = act(row, given)
            else:
                actions, log_probs = act(row)
            chosen = writer.act(actions, log_probs)
            if self.pool is not None:
                chosen = self.pool.act(row, given, chosen)
            taken = self._actions[view.name].to_env(chosen)
            parts.append((view, taken))
        return gather_actions(parts, self.env.n_envs)

    def _add(
        self,
        writers: Mapping[str, UnrollWriter],
        acting: Mapping[str, MemoryActor],
        active: Mapping[str, npt.NDArray[np.bool_]],
        step: MultiAgentStep,
    ) -> None:
        """Keep what the envs answered; ``active`` (N * A,) says who acted, by policy."""
        if self.pool is not None:
            self.pool.add(step["rewards"][self.views[0].group.name], step["episode_ended"])
        everybody = np.concatenate(list(step["rewards"].values()), axis=1)
        for view in self.views:
            rewards = view.take(step["rewards"])
            if self._team_reward != "own":
                total = getattr(everybody, self._team_reward)(axis=1)
                rewards = np.repeat(total, len(view.columns))
            terminated, truncated = view.take(step["terminated"]), view.take(step["truncated"])
            over = np.repeat(step["episode_ended"], len(view.columns))
            scaler, scaled = self.reward_scalers.get(view.name), None
            if scaler is not None:
                rests = ~active[view.name] & (rewards == 0)
                scaled = scaler.scale(rewards, terminated | truncated | over, lost=rests)
            final = view.see(step["final_obs"], step["final_state"]) if truncated.any() else {}
            last = writers[view.name].add(
                {
                    "obs": None,
                    "rewards": rewards,
                    "terminated": terminated,
                    "truncated": truncated,
                    "final_obs": final,
                },
                scaled,
            )
            if view.name in acting:
                acting[view.name].end_step(last, terminated, truncated, begins=over)


def gather_actions(parts: list[tuple[PolicyView, Any]], n_envs: int) -> dict[str, Any]:
    """Return (N, A, ...) actions by group from those of policies, (N * agents, ...) each.

    Args:
        parts: views and actions, nested as their space is.
        n_envs: number of envs N.
    """
    found: dict[str, list[tuple[PolicyView, Any]]] = {}
    for view, actions in parts:
        found.setdefault(view.group.name, []).append((view, actions))
    return {
        name: _side_by_side(
            [_per_env(actions, n_envs) for _, actions in some],
            np.argsort([column for view, _ in some for column in view.columns]),
        )
        for name, some in found.items()
    }


def _per_env(actions: Any, n_envs: int) -> Any:
    return map_nested(lambda leaf: leaf.reshape(n_envs, -1, *leaf.shape[1:]), actions)


def _side_by_side(parts: list[Any], order: npt.NDArray[Any]) -> Any:
    """Return the parts' columns in the order of the group's."""
    if len(parts) == 1:
        return parts[0]
    return map_nested(lambda *leaves: np.concatenate(leaves, axis=1)[:, order], *parts)
