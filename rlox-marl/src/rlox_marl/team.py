"""Learning of teams: one policy for each group, or each agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from rlox.batches.rollout import RolloutBatch
from rlox.config.model import changed
from rlox.deployment import TeamData
from rlox.envs import fixed_env_count
from rlox.errors import CheckpointError, ConfigError
from rlox.learners import Objective, RolloutTask, Update, choose_learner
from rlox.networks.validate import require_actor, try_actor
from rlox.nn import (
    find_device,
    load_module_state,
    module_state,
    set_compute_dtype,
    torch_threads,
)
from rlox.protocols import MultiAgentObs
from rlox.rollouts import require_same_option
from rlox.training.hooks import Hooks
from torch import nn

from rlox_marl.acting import TeamActor
from rlox_marl.collector import MultiAgentCollector
from rlox_marl.optimizers import ActorCriticOptimizer, make_optimizer
from rlox_marl.policies import make_team_policy
from rlox_marl.preprocessing import TeamPreprocessor
from rlox_marl.running import RunningTeams, make_envs, with_agents
from rlox_marl.self_play import OpponentPool, require_two_players
from rlox_marl.views import PolicyView, make_views

__all__ = ["Team"]

ONE_AGENT_OPTIONS = ("clip_rewards",)
"""PPO's options that teams do not have."""


class Team:
    """Collects, learns and predicts for an env of several agents.

    Args:
        algorithm: its base has been initialised; it gets the optimisers and the learner, and frees
            the envs.
        policy: from a view's nested observation space and the action space of an agent to a module
            with the methods of :class:`rlox.protocols.OnPolicyActor`; ``None``:
            :class:`rlox_marl.policies.TeamPolicy`.
        objective: with the numbers of the first iteration.
        update: of one policy from its rollout, in torch.

    Raises:
        BackendError: the learner backend cannot learn the policies.
        ConfigError: an option is of one agent, or contradicts the env.
        EnvError: the env cannot be built.
    """

    def __init__(
        self,
        algorithm: Any,
        policy: Callable[..., nn.Module] | None,
        objective: Objective,
        update: Update,
    ) -> None:
        cfg = algorithm.config
        for name in ONE_AGENT_OPTIONS:
            if changed(cfg, name):
                raise ConfigError(
                    f"{name}={getattr(cfg, name)!r} is not supported for several agents; leave it "
                    "out"
                )
        if isinstance(policy, nn.Module) or (policy is not None and not callable(policy)):
            raise TypeError(
                "policy must be a callable (observation_space, action_space) -> module for several "
                f"agents, one module for each policy, got {type(policy).__name__}"
            )
        self._algorithm, self._update = algorithm, update
        self.device = find_device(cfg.device)
        source = algorithm.env_source
        env = make_envs(cfg, source)
        owned = fixed_env_count(source) is None
        with ExitStack() as made:  # the envs are closed if the rest fails
            if owned:
                made.callback(env.close)
            algorithm.config = with_agents(cfg, env)
            preprocessor = None
            if cfg.normalize_observations or cfg.frame_stack > 1:
                preprocessor = TeamPreprocessor(
                    env, normalize=cfg.normalize_observations, frame_stack=cfg.frame_stack
                )
            self.views = make_views(preprocessor or env, cfg.critic, cfg.share_parameters)
            made.pop_all()
        seed = algorithm.streams.seeds("envs", 1)[0]
        envs = RunningTeams(env, seed, owned=owned, preprocessor=preprocessor)
        algorithm.resources.callback(envs.close)
        self.collector = MultiAgentCollector(
            envs,
            self.views,
            device=self.device,
            team_reward=cfg.team_reward,
            gamma=cfg.gamma,
            gae_lambda=cfg.gae_lambda,
            normalize_rewards=cfg.normalize_rewards,
        )
        self.policies: dict[str, Any] = {}
        algorithm.optimizers = {}
        for view in self.views:
            self.policies[view.name] = made = self._make_policy(view, policy)
            if cfg.opponents != "none":
                self.collector.pool = self._make_pool(made, env.n_envs)
            algorithm.optimizers[view.name] = make_optimizer(made, cfg)
        self._tasks = {name: self._task(name, objective) for name in self.policies}
        self._learners = {n: choose_learner(cfg.backend, task) for n, task in self._tasks.items()}
        algorithm.learner = next(iter(self._learners.values()))
        generator, seen = algorithm.streams.torch("predict"), preprocessor
        self._actor = TeamActor(
            self.views, self.policies, env, generator, self.device, preprocessor=seen
        )

    def _task(self, name: str, objective: Objective) -> RolloutTask:
        cfg = self._algorithm.config
        return RolloutTask(
            objective,
            self.policies[name],
            self._algorithm.optimizers[name],
            self.collector,
            self._update,
            self.device,
            n_epochs=cfg.n_epochs,
            batch_size=cfg.batch_size,
            target_kl=cfg.target_kl,
            generator=self._algorithm.streams.torch("minibatches"),
            added_losses=self._algorithm.added_losses,
        )

    def _make_policy(self, view: PolicyView, policy: Callable[..., nn.Module] | None) -> Any:
        cfg = self._algorithm.config
        generator = self._algorithm.streams.torch("policy")
        made: Any
        if policy is None:
            made = make_team_policy(
                view,
                recurrent=cfg.recurrent,
                memory_size=cfg.memory_size,
                hidden=cfg.hidden,
                network=cfg.network,
                normalize_values=cfg.normalize_values,
                generator=generator,
            )
        else:
            made = policy(view.space, view.group.action_space)
            require_actor(made)
            if getattr(made, "generator", ...) is None:
                made.generator = generator
            if cfg.normalize_values != "none" and getattr(made, "value_norm", None) is None:
                raise ConfigError(
                    f"normalize_values='{cfg.normalize_values}' needs a policy with value_norm, "
                    f"which {type(made).__name__} has not; give it one, or leave the option out"
                )
        made.to(self.device)
        set_compute_dtype(made, cfg.compute_dtype)
        if policy is not None:
            try_actor(made, view.space, view.group.action_space, self.device)
        return made

    def _make_pool(self, policy: Any, n_envs: int) -> OpponentPool:
        cfg, streams = self._algorithm.config, self._algorithm.streams
        require_two_players(self.views)
        return OpponentPool(
            policy,
            n_envs,
            size=cfg.pool_size,
            drawn=cfg.opponents,
            share=cfg.pool_share,
            interval=cfg.pool_interval,
            rng=streams.numpy("opponents"),
            generator=streams.torch("opponents"),
        )

    def collect(self, hooks: Hooks) -> dict[str, RolloutBatch]:
        """Return a rollout with advantages for each policy whose agents acted."""
        n_steps = self._algorithm.config.n_steps
        if self.collector.pool is not None:
            (policy,) = self.policies.values()
            self.collector.pool.freeze(policy, self._algorithm.clock.env_steps)
        preprocessor = self.collector.envs.preprocessor
        with nullcontext() if preprocessor is None else preprocessor.sharing():
            return self.collector.collect(self.policies, n_steps, hooks.env_step)

    def update(
        self,
        batches: Mapping[str, RolloutBatch],
        objective: Objective,
        rates: Mapping[str, float],
        hooks: Hooks,
    ) -> dict[str, float]:
        """Let each policy learn from its rollout, and return the means over policies of terms."""
        cfg = self._algorithm.config
        reports = []
        for name, batch in batches.items():
            optimizer = self._algorithm.optimizers[name]
            if isinstance(optimizer, ActorCriticOptimizer):
                optimizer.critic_learning_rate = rates["critic_learning_rate"]
            size = min(cfg.batch_size, len(batch.returns))
            if batch.initial_state is None:
                size = _whole_minibatches(size, len(batch.returns))
            if 1 in (size, len(batch.returns)) and cfg.normalize_advantages:
                continue  # the advantage of one row alone says nothing
            learner = self._learners[name]
            if size != cfg.batch_size:  # so few agents acted, or a row would be left alone
                task = replace(self._tasks[name], batch_size=size)
                learner = choose_learner(learner.backend, task)
            terms = learner.update(batch, objective, rates["learning_rate"], hooks)
            reports.append({**terms, "explained_variance": batch.explained_variance()})
        if not reports:
            return {}
        return {key: float(np.mean([one[key] for one in reports])) for key in reports[0]}

    def agent_metrics(self) -> dict[str, float]:
        """Return the mean return of each agent over the last episodes."""
        returns = self.collector.statistics.agent_returns
        return {f"return/{agent}": value for agent, value in returns.items()}

    def optional_metrics(self) -> dict[str, float]:
        """Return the learner's rating, where it plays a pool."""
        pool = self.collector.pool
        if pool is None:
            return {}
        return {"elo": pool.rating, "pool_policies": float(len(pool.members))}

    def predict(self, obs: Any, deterministic: bool, agent_idx: Any, **memory: Any) -> Any:
        """Return an action of one agent, or actions for a batch; see :class:`TeamActor`."""
        with torch_threads(self._algorithm.config.torch_threads):
            return self._actor.predict(obs, deterministic, agent_idx, **memory)

    def predict_team(self, obs: MultiAgentObs, deterministic: bool = True, **memory: Any) -> Any:
        """Return the actions of all agents, by group; see :class:`TeamActor`."""
        with torch_threads(self._algorithm.config.torch_threads):
            return self._actor.predict_team(obs, deterministic, **memory)

    def policy_data(self) -> TeamData:
        """Return the policies as data; see :class:`rlox.deployment.Exportable`."""
        return self._actor.policy_data(self._algorithm.name)

    def state_dict(self) -> dict[str, Any]:
        """Return policies, optimisers and envs."""
        optimizers = self._algorithm.optimizers
        scalers = self.collector.reward_scalers
        return {
            "policies": {name: module_state(policy) for name, policy in self.policies.items()},
            "optimizers": {name: one.state_dict() for name, one in optimizers.items()},
            "envs": self.collector.envs.state_dict(),
            "rewards": {name: one.state_dict() for name, one in scalers.items()},
            "memory": self.collector.memory_state(),
            "pool": None if self.collector.pool is None else self.collector.pool.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore policies, optimisers and envs.

        Raises:
            CheckpointError: the policies are another team's, or it was saved with another choice of
                what is normalised.
        """
        if set(state["policies"]) != set(self.policies):
            raise CheckpointError(
                f"it holds the policies {', '.join(sorted(state['policies']))}, and the env's team "
                f"has {', '.join(sorted(self.policies))}; pass the env that it was trained on"
            )
        for name, policy in self.policies.items():
            load_module_state(policy, state["policies"][name])
            self._algorithm.optimizers[name].load_state_dict(state["optimizers"][name])
        scalers = self.collector.reward_scalers
        require_same_option("normalize_rewards", bool(state.get("rewards")), bool(scalers))
        exact = self.collector.envs.load_state_dict(state["envs"])
        for name, scaler in scalers.items():
            scaler.load_state_dict(state["rewards"][name], keep_running=exact)
        self.collector.load_memory_state(state.get("memory", {}) if exact else {})
        if self.collector.pool is not None and state.get("pool") is not None:
            self.collector.pool.load_state_dict(state["pool"], keep_games=exact)


def _whole_minibatches(batch_size: int, n_rows: int) -> int:
    """Return a minibatch size of at most ``batch_size`` that leaves no single row at the end."""
    size = min(batch_size, n_rows)
    while size > 2 and n_rows % size == 1:
        size -= 1
    return size
