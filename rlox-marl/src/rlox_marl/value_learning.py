"""Learning of action values of teams: stepping, gradient steps, target networks, acting."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.config.schedules import Schedules
from rlox.deployment import TeamData
from rlox.envs import fixed_env_count, is_team, make_team_env
from rlox.errors import ConfigError
from rlox.networks import polyak_update
from rlox.nn import (
    FlatOptimizer,
    find_device,
    flush_denormals,
    load_parts_state,
    parts_state,
    torch_threads,
)
from rlox.protocols import MultiAgentObs, MultiAgentVecEnv
from rlox.replay.buffers import SequenceOptions, make_sequence_buffer
from rlox.replay.loop import UpdatesDue
from rlox.training.hooks import Hooks
from torch import Tensor

from rlox_marl.acting import TeamActor
from rlox_marl.action_values import TeamValues, require_discrete
from rlox_marl.collector import gather_actions
from rlox_marl.exploring import GreedyPolicy
from rlox_marl.mixing import MixingKind
from rlox_marl.running import RunningTeams, with_agents
from rlox_marl.shown import require_shown
from rlox_marl.team_replay import TeamReplay
from rlox_marl.team_sequences import TeamActed, row_fields
from rlox_marl.value_loss import team_value_loss
from rlox_marl.views import make_views, see_team, team_space

__all__ = ["TeamValueMetrics", "ValueLearning"]


@dataclass(frozen=True)
class TeamValueMetrics:
    """What one iteration reports; losses are means over its gradient steps, NaN without one."""

    mean_reward: float
    """Mean over the last 100 finished episodes of the mean over agents of their returns; NaN before
    the first."""
    mean_episode_length: float
    """Mean length of the same episodes in env steps."""
    episodes: float
    """Number of episodes finished so far."""
    q_loss: float
    q_value: float
    """Mean Q_tot(s, a) of the batches; without mixing, of the agents' Q(o, a)."""
    epsilon: float
    """Probability of a uniform action of an agent."""
    learning_rate: float
    agents: Mapping[str, float] = field(default_factory=dict)
    """Mean return of each agent over the same episodes, ``return/<agent>``."""


class ValueLearning:
    """Steps, learns and acts for an algorithm that learns action values of a team.

    Args:
        algorithm: its base has been initialised; it gets the optimiser, and frees the envs.
        mixing: how the values of agents become those that are learnt.
        schedules: see :class:`rlox_marl.qmix.QMIX`.

    Raises:
        ConfigError: an option contradicts the env.
        EnvError: the env cannot be built.
        SpaceError: actions are not discrete, or observations have no encoder.
    """

    def __init__(
        self,
        algorithm: Any,
        mixing: MixingKind,
        schedules: Mapping[str, Callable[[int], float]] | None,
    ) -> None:
        self._algorithm, self._mixing = algorithm, mixing
        cfg, streams = algorithm.config, algorithm.streams
        self.schedules = Schedules(cfg, ("learning_rate", "epsilon"), schedules)
        self.device = find_device(cfg.device)
        env = self._make_env(algorithm)
        envs = RunningTeams(
            env,
            streams.seeds("envs", 1)[0],
            owned=fixed_env_count(algorithm.env_source) is None,
        )
        algorithm.resources.callback(envs.close)
        cfg = algorithm.config = with_agents(cfg, env)
        self._views = make_views(env, "local", cfg.share_parameters)
        require_discrete(env.groups)
        self._memory_size = cfg.memory_size if cfg.recurrent == "gru" else 0
        state_space = team_space(env) if mixing == "monotone" else None
        self.network = TeamValues(
            self._views,
            state_space,
            mixing,
            getattr(cfg, "mixing_size", 0),
            getattr(cfg, "hyper_size", 0),
            hidden=cfg.hidden,
            memory_size=self._memory_size,
            network=cfg.network,
            generator=streams.torch("policy"),
        ).to(self.device)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        adam = partial(torch.optim.Adam, eps=cfg.adam_eps, fused=True)
        optimizer = FlatOptimizer(self.network, adam, max_grad_norm=cfg.max_grad_norm)
        algorithm.optimizers = {"network": optimizer}
        self.collector = self._make_replay(envs, state_space)
        self._policies = {
            view.name: GreedyPolicy(network, self._epsilon, self._memory_size)  # type: ignore[arg-type]
            for view, network in zip(self._views, self.network.agents, strict=True)
        }
        self._actor = TeamActor(
            self._views,
            self._policies,
            env,
            streams.torch("predict"),
            self.device,
            remembers_rests=True,
        )
        self._forget()
        self._parts = {"network": self.network, "target": self.target, "optimizer": optimizer}

    @staticmethod
    def _make_env(algorithm: Any) -> MultiAgentVecEnv:
        cfg, source = algorithm.config, algorithm.env_source
        if source is None:
            raise ConfigError("there is no env; pass its id or a callable as env_id, or env_fn=")
        given = {"backend": cfg.env_backend, "env_kwargs": cfg.env_kwargs or None}
        if not is_team(source, **given):
            raise ConfigError(
                f"'{algorithm.name}' learns in envs of several agents, and this env has one; take "
                "dqn, or a PettingZoo env"
            )
        return make_team_env(source, n_envs=cfg.n_envs, **given)

    def _make_replay(self, envs: RunningTeams, state_space: Any) -> TeamReplay:
        algorithm = self._algorithm
        cfg = algorithm.config
        fields = row_fields(self._views, set(envs.shown["masks"]), self._memory_size, state_space)
        seed = algorithm.streams.seeds("replay", 1)[0]
        asked = SequenceOptions(cfg.buffer_size, fields, envs.env.n_envs, seed)
        buffer = make_sequence_buffer("sequence", asked)
        return TeamReplay(
            envs,
            self._views,
            buffer,
            algorithm.clock,
            updates=UpdatesDue(cfg.gradient_steps, cfg.train_freq),
            keeps_state=state_space is not None,
            batch_size=cfg.batch_size,
            length=cfg.length,
            learning_starts=cfg.learning_starts,
            steps_per_iteration=cfg.steps_per_iteration,
            saves_buffer=cfg.save_replay_buffer,
            waiting=self._mixing != "none",
            device=self.device,
        )

    def _forget(self) -> None:
        n_envs = self.collector.env.n_envs
        self._memory: dict[str, Tensor] = {
            view.name: torch.zeros(
                n_envs * len(view.columns), self._memory_size, device=self.device
            )
            for view in self._views
        }

    def _epsilon(self) -> float:
        clock = self._algorithm.clock
        return self.schedules.value("epsilon", clock.env_steps, clock.target_env_steps)

    def iterate(self, hooks: Hooks) -> TeamValueMetrics:
        """Step the envs for one iteration and learn whenever gradient steps are due."""
        clock, statistics = self._algorithm.clock, self.collector.statistics
        collected: list[tuple[float, float]] = []
        with torch_threads(self._algorithm.config.torch_threads), flush_denormals():
            self._learn_due(hooks, collected)  # what an interrupted iteration left
            for _ in range(self.collector.vector_steps_left):
                self.collector.step(self._act, hooks)
                self._learn_due(hooks, collected)
                if hooks.stopped:
                    break
        means = np.mean(collected, axis=0) if collected else (float("nan"), float("nan"))
        returns = statistics.agent_returns
        return TeamValueMetrics(
            mean_reward=statistics.mean_return,
            mean_episode_length=statistics.mean_length,
            episodes=float(statistics.finished),
            q_loss=float(means[0]),
            q_value=float(means[1]),
            epsilon=self._epsilon(),
            learning_rate=self.schedules.value(
                "learning_rate", clock.env_steps, clock.target_env_steps
            ),
            agents={f"return/{agent}": value for agent, value in returns.items()},
        )

    @torch.no_grad()
    def _act(self, starts: npt.NDArray[np.bool_]) -> TeamActed:
        """Return ε-greedy actions in the envs as they are, and remember what they show."""
        generator = self._algorithm.streams.torch("exploration")
        shown, n_envs = self.collector.envs.shown, self.collector.env.n_envs
        actions, memory, parts = {}, {}, []
        for view in self._views:
            begins = torch.from_numpy(np.repeat(starts, len(view.columns))).to(self.device)
            before = self._memory[view.name].masked_fill(begins.unsqueeze(-1), 0.0)
            seen, masks = self._actor.seen(view, shown)
            chosen, _, self._memory[view.name] = self._policies[view.name].step(
                seen, before, *masks
            )
            rows = chosen.sample(generator)[0].cpu().numpy()
            actions[view.name] = rows.reshape(n_envs, -1)
            if self._memory_size:
                memory[view.name] = before.cpu().numpy().reshape(n_envs, -1, self._memory_size)
            parts.append((view, self._actor.to_env(view, rows)))
        return TeamActed(actions, gather_actions(parts, n_envs), memory)

    def _learn_due(self, hooks: Hooks, collected: list[tuple[float, float]]) -> None:
        """Take the gradient steps that are due."""
        cfg, clock = self._algorithm.config, self._algorithm.clock
        for _ in self.collector.updates_due(hooks):
            rate = self.schedules.value("learning_rate", clock.env_steps, clock.target_env_steps)
            loss, value = team_value_loss(
                self.network,
                self.target,
                self.collector.draw(),
                gamma=cfg.gamma,
                team_reward=cfg.team_reward,
                double_q=cfg.double_q,
            )
            self._algorithm.optimizers["network"].step(loss, rate)
            if (clock.gradient_steps + 1) % cfg.target_update_interval == 0:
                polyak_update(self.network, self.target, cfg.tau)
            collected.append((float(loss.detach()), float(value)))
            hooks.train_batch(lambda: dict(zip(("q_loss", "q_value"), collected[-1], strict=True)))

    @torch.no_grad()
    def value(self, obs: MultiAgentObs) -> npt.NDArray[np.float32]:
        """Return what the best actions are worth as episodes begin: (N, 1), or (N, A) of agents.

        Args:
            obs: of N envs, whose episodes begin.
        """
        env = self.collector.env
        require_shown(obs, env.groups, env.state_space if self._mixing == "monotone" else None)
        best = []
        n_envs = len(next(iter(obs["active"].values())))
        for view in self._views:
            seen, masks = self._actor.seen(view, obs)
            nothing = torch.zeros(n_envs * len(view.columns), self._memory_size, device=self.device)
            _, values, _ = self._policies[view.name].step(seen, nothing, *masks)
            active = torch.from_numpy(view.take(obs["active"])).to(self.device)
            best.append((values * active).view(n_envs, -1))
        state = None
        if self._mixing == "monotone":
            rows = np.ascontiguousarray(see_team(env.groups, obs["obs"], obs["state"]))
            state = torch.from_numpy(rows).to(self.device)
        return self.network.mixing(torch.cat(best, 1), state).cpu().numpy()  # type: ignore[no-any-return]

    def predict(self, obs: Any, deterministic: bool, agent_idx: Any, **memory: Any) -> Any:
        """Return an action of one agent, or actions for a batch; see :class:`TeamActor`."""
        with torch_threads(self._algorithm.config.torch_threads):
            return self._actor.predict(obs, deterministic, agent_idx, **memory)

    def predict_team(self, obs: MultiAgentObs, deterministic: bool, **memory: Any) -> Any:
        """Return the actions of all agents; see :class:`TeamActor`."""
        with torch_threads(self._algorithm.config.torch_threads):
            return self._actor.predict_team(obs, deterministic, **memory)

    def policy_data(self) -> TeamData:
        """Return the policies as data; see :class:`rlox.deployment.Exportable`."""
        return self._actor.policy_data(self._algorithm.name)

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimiser, envs, memories and buffer."""
        memory = {name: state.cpu().numpy().copy() for name, state in self._memory.items()}
        collector = {"collector": self.collector.state_dict(), "memory": memory}
        return parts_state(self._parts) | collector

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore networks, optimiser, envs, memories and buffer."""
        load_parts_state(self._parts, state)
        self._forget()
        if self.collector.load_state_dict(state["collector"]):
            for name, memory in self._memory.items():
                memory.copy_(torch.from_numpy(np.array(state["memory"][name])))
