"""The frame of the algorithms that learn action values of teams, and their loss.

Over B sequences of T steps, the loss is

    L = mean over the steps of (Q_tot(s, a) - y)²,    y = r + γ Q'_tot(s', a'),
    Q_tot(s, a) = mix(Q_1(o_1, a_1), …, Q_A(o_A, a_A); s),    a'_i = argmax over a of Q_i(o'_i, a)

where Q' is a target copy, resting agents count as 0 in the mixing, and γ is 0 where the task
ended. Without mixing, the mean runs over each agent's own steps, and its own end sets γ to 0.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from rlox.callbacks import Callback
from rlox.config.model import Config, resolve_config
from rlox.config.schedules import Schedules
from rlox.envs import fit_env_count
from rlox.errors import ConfigError, SpaceError
from rlox.logging import LoggerCallback
from rlox.losses import mean_by_name
from rlox.networks import polyak_update
from rlox.nn import (
    FlatOptimizer,
    Layers,
    find_device,
    flush_denormals,
    load_parts_state,
    parts_state,
)
from rlox.protocols import MultiAgentObs, MultiAgentVecEnv
from rlox.replay.algorithm import ReplayMetrics
from rlox.training.hooks import Hooks
from torch import Tensor

from rlox_marl.action_values import AgentValues, GreedyPolicy, Mixing, TeamValues, greedy
from rlox_marl.collector import RunningTeams, gather_actions
from rlox_marl.team_algorithm import TeamAlgorithm, has_team, require_shown
from rlox_marl.team_replay import Acted, TeamReplay, TeamSequences
from rlox_marl.views import make_views, see_team


@dataclass(frozen=True, kw_only=True)
class TeamValueMetrics(ReplayMetrics):
    """Metrics of one iteration; ``mean_reward`` averages the agents' mean return over episodes.

    ``q_value`` is the batches' mean Q_tot(s, a); without mixing, the mean Q(o, a) of the agents.
    """

    epsilon: float
    """Probability that an agent acts uniformly at random."""
    agents: Mapping[str, float] = field(default_factory=dict)
    """Mean return of each agent over the same episodes, ``return/<agent>``."""


class TeamValueAlgorithm(TeamAlgorithm):
    """Steps, learns and acts by a team's action values; subclasses define the mixing.

    The arguments are those of :class:`rlox_marl.team_algorithm.TeamAlgorithm`.

    Raises:
        SpaceError: actions are not discrete, or observations have no encoder.
    """

    remembers_rests = True
    config: Any
    collector: TeamReplay

    def __init__(
        self,
        env_id: Any = None,
        *,
        env_fn: Callable[[], Any] | None = None,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        config: Config | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        **config_kwargs: Any,
    ) -> None:
        source = env_id if env_fn is None else env_fn
        resolved = resolve_config(self.config_class, config, **config_kwargs)
        super().__init__(
            source, config=fit_env_count(resolved, source), callbacks=callbacks, logger=logger
        )
        self.env_fn = env_fn
        self.schedules = Schedules(self.config, schedules)
        self.device = find_device(self.config.device)
        if not has_team(source, self.config):
            raise ConfigError(
                f"'{self.name}' learns in envs of several agents, and this env has one; take "
                "dqn, or a PettingZoo env"
            )
        env = self._make_envs()
        cfg = self.config
        self.views = make_views(env, "local", cfg.share_parameters)
        for group in env.groups:
            if not isinstance(group.action_space, spaces.Discrete):
                raise SpaceError(
                    f"actions must be Discrete, and those of {', '.join(group.agents)} are "
                    f"{group.action_space}; take mappo or ippo"
                )
        common = {"network": cfg.network, "generator": self.streams.torch("policy")}
        sizes = {"hidden": Layers.of(cfg), "memory_size": cfg.n_remembered}
        agents = {view.name: AgentValues(view, **sizes, **common) for view in self.views}
        self.network = TeamValues(agents, self.make_mixing(env, **common)).to(self.device)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        adam = partial(torch.optim.Adam, eps=cfg.adam_eps, fused=True)
        optimizer = FlatOptimizer(self.network, adam, max_grad_norm=cfg.max_grad_norm)
        self.optimizers = {"network": optimizer}
        self._parts = {"network": self.network, "target": self.target, "optimizer": optimizer}
        self.collector = TeamReplay(
            RunningTeams(env, self.streams.seeds("envs", 1)[0]), self.views, cfg, self.clock,
            mixing=self.network.mixing, seed=self.streams.seeds("replay", 1)[0],
        )  # fmt: skip
        self.policies = {
            name: GreedyPolicy(one, partial(self._now, "epsilon"), cfg.n_remembered)
            for name, one in agents.items()
        }
        self._can_act(env)
        self._forget()

    @abstractmethod
    def make_mixing(self, env: MultiAgentVecEnv, **options: Any) -> Mixing:
        """Return the module that turns the agents' values into the learnt ones.

        Args:
            env: defines the team.
            options: ``network`` and ``generator``, see
                :class:`rlox_marl.action_values.MonotoneMixing`.
        """

    def _now(self, name: str) -> float:
        """Return the current value of a schedule."""
        return self.schedules.value(name, self.clock.env_steps, self.clock.target_env_steps)

    def _forget(self) -> None:
        """Clear the agents' memories."""
        n_envs = self.collector.n_envs
        self._memory = {view.name: self._memory_of(view, n_envs) for view in self.views}

    def iterate(self, hooks: Hooks) -> TeamValueMetrics:
        """Step the envs for one iteration and learn whenever gradient steps are due."""
        collected: list[dict[str, float]] = []
        with flush_denormals():
            self._learn_due(hooks, collected)  # what an interrupted iteration left
            for _ in range(self.collector.vector_steps_left):
                self.collector.step(self._act, hooks)
                self._learn_due(hooks, collected)
                if hooks.stopped:
                    break
        now: dict[str, Any] = {name: self._now(name) for name in ("epsilon", "learning_rate")}
        means: dict[str, Any] = {"q_loss": float("nan"), "q_value": float("nan")}
        means |= mean_by_name(collected)
        return TeamValueMetrics(**self.collector.statistics.metrics(), **now, **means)

    @torch.no_grad()
    def _act(self, starts: npt.NDArray[np.bool_]) -> Acted:
        """Return ε-greedy actions for the current observations, and update the memories."""
        generator = self.streams.torch("exploration")
        shown, n_envs = self.collector.envs.obs, self.collector.n_envs
        rows, actions, parts = {}, [], []
        for view in self.views:
            before = self._memory_of(view, n_envs, self._memory[view.name], starts)
            seen, masks = self._seen(view, shown)
            chosen, _, self._memory[view.name] = self.policies[view.name].step(seen, before, *masks)
            taken = chosen.sample(generator)[0]
            actions.append(taken.cpu().numpy().reshape(n_envs, -1))
            if size := before.shape[1]:
                rows[f"memory {view.name}"] = before.cpu().numpy().reshape(n_envs, -1, size)
            parts.append((view, view.actions.to_env(taken.cpu().numpy())))
        rows["actions"] = np.concatenate(actions, axis=1)
        return rows, gather_actions(parts, n_envs)

    def _learn_due(self, hooks: Hooks, collected: list[dict[str, float]]) -> None:
        """Take the due gradient steps."""
        cfg = self.config
        for _ in self.collector.updates_due(hooks, self.schedules):
            rate = self._now("learning_rate")
            loss, value = team_value_loss(
                self.network, self.target, self.collector.draw(),
                gamma=cfg.gamma, team_reward=cfg.team_reward, double_q=cfg.double_q,
            )  # fmt: skip
            self.optimizers["network"].step(loss, rate)
            if (self.clock.gradient_steps + 1) % cfg.target_update_interval == 0:
                polyak_update(self.network, self.target, cfg.tau)
            collected.append({"q_loss": float(loss.detach()), "q_value": float(value)})
            hooks.train_batch(lambda: collected[-1])

    @torch.no_grad()
    def value(self, obs: MultiAgentObs) -> npt.NDArray[Any]:
        """Return the best actions' values at episode starts: (N, 1), or (N, A) without mixing.

        Args:
            obs: first observations of N envs.
        """
        env, mixing = self.collector.env, self.network.mixing
        sees_state = mixing.state_space is not None
        require_shown(obs, env.groups, env.state_space if sees_state else None)
        best = []
        n_envs = len(next(iter(obs["active"].values())))
        for view in self.views:
            seen, masks = self._seen(view, obs)
            memory = self._memory_of(view, n_envs)
            _, values, _ = self.policies[view.name].step(seen, memory, *masks)
            active = torch.from_numpy(view.take(obs["active"])).to(self.device)
            best.append((values * active).view(n_envs, -1))
        state = None
        if sees_state:
            rows = np.ascontiguousarray(see_team(env.groups, obs["obs"], obs["state"]))
            state = torch.from_numpy(rows).to(self.device)
        return mixing(torch.cat(best, 1), state).cpu().numpy()  # type: ignore[no-any-return]

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimiser, envs, memories and, if the config asks for it, the buffer."""
        memory = {name: state.cpu().numpy().copy() for name, state in self._memory.items()}
        collector = {"collector": self.collector.state_dict(), "memory": memory}
        return parts_state(self._parts) | collector

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        load_parts_state(self._parts, state)
        self._forget()
        if self.collector.load_state_dict(state["collector"]):
            for name, memory in self._memory.items():
                memory.copy_(torch.from_numpy(np.array(state["memory"][name])))


def team_value_loss(
    network: TeamValues,
    target: TeamValues,
    batch: TeamSequences,
    *,
    gamma: float,
    team_reward: Literal["own", "mean", "sum"],
    double_q: bool,
) -> tuple[Tensor, Tensor]:
    """Return the loss, and the mean value of the actions taken.

    Args:
        network: the trained network.
        target: evaluates the next actions.
        batch: sequences.
        gamma: discount γ in [0, 1].
        team_reward: reward to learn from: an agent's own, which needs a network without mixing, or
            the mean or the sum of all agents' rewards.
        double_q: whether the network chooses the actions that the target evaluates; else the
            target chooses too.

    Source:
        Rashid et al. 2018, eq. 6; van Hasselt et al. 2016 for the choice of a'.
    """
    values, after = network(batch.obs, batch.memory, batch.starts)
    chosen = _at(values, batch.actions) * batch.active
    totals = network.mixing(chosen.flatten(0, 1), _rows(batch.state))
    with torch.no_grad():
        _, judged_after = target(batch.obs, batch.memory, batch.starts)
        judged = target.following(batch.next_obs, judged_after)
        choosing = network.following(batch.next_obs, after) if double_q else judged
        best = [greedy(q, batch.next_masks.get(name)) for name, q in choosing.items()]
        following = _at(judged, torch.cat(best, -1)) * batch.next_active
        next_totals = target.mixing(following.flatten(0, 1), _rows(batch.next_state))
        rewards = batch.rewards
        if team_reward != "own":
            rewards = getattr(rewards, team_reward)(-1, keepdim=True).expand_as(rewards)
        if network.mixing.by_agent:
            goes_on, counts = ~batch.terminated, batch.active
        else:
            rewards = rewards[..., :1]
            goes_on = batch.next_active.any(-1, keepdim=True)
            counts = torch.ones_like(goes_on)
        targets = rewards.flatten(0, 1) + gamma * goes_on.flatten(0, 1) * next_totals
    weights = counts.flatten(0, 1) / counts.sum()
    loss = ((totals - targets).square() * weights).sum()
    return loss, (totals.detach() * weights).sum()


def _at(values: Mapping[str, Tensor], actions: Tensor) -> Tensor:
    """Return the values of actions (T, B, agents), whose last axis concatenates the views."""
    parts = torch.split(actions, [q.shape[-2] for q in values.values()], -1)
    pairs = zip(values.values(), parts, strict=True)
    return torch.cat([q.gather(-1, own.unsqueeze(-1)).squeeze(-1) for q, own in pairs], -1)


def _rows(state: Tensor | None) -> Tensor | None:
    return None if state is None else state.flatten(0, 1)
