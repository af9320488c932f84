"""The frame of the algorithms that learn from rollouts of teams, one policy per group or agent."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rlox.batches.rollout import RolloutBatch
from rlox.callbacks import Callback
from rlox.config.model import Config, changed, resolve_config
from rlox.config.schedules import Schedules
from rlox.envs import fixed_env_count
from rlox.errors import CheckpointError, ConfigError
from rlox.learners import (
    AddedLosses,
    ChosenLearner,
    Losses,
    Objective,
    RolloutTask,
    choose_learner,
    make_metrics,
)
from rlox.logging import LoggerCallback
from rlox.losses import ClippedSurrogate
from rlox.networks.validate import refuse_network_options, require_actor, try_actor
from rlox.nn import find_device, load_module_state, module_state, set_compute_dtype, torch_threads
from rlox.rollouts import (
    NETWORK_OPTIONS,
    fit_to_env,
    minimize_over_epochs,
    require_objective,
    require_same_option,
)
from rlox.training.hooks import Hooks
from torch import nn

from rlox_marl.acting import TeamActor
from rlox_marl.collector import MultiAgentCollector
from rlox_marl.one_agent import OneAgent
from rlox_marl.optimizers import ActorCriticOptimizer, make_optimizer
from rlox_marl.policies import make_team_policy
from rlox_marl.running import RunningTeams, TeamPreprocessor
from rlox_marl.self_play import OpponentPool, require_two_players
from rlox_marl.team_algorithm import TeamAlgorithm
from rlox_marl.views import PolicyView, make_views

__all__ = ["Team", "TeamRolloutAlgorithm"]

LOSS_OPTIONS = (*(field.name for field in fields(ClippedSurrogate)), "huber_delta")
"""The options that are numbers of the algorithm's own objective."""

ONE_AGENT_OPTIONS = ("clip_rewards",)
"""PPO's options that teams do not have."""


class TeamRolloutAlgorithm(TeamAlgorithm):
    """Collects rollouts of several agents, and lets each policy learn from the steps of its agents.

    Args:
        env_id: of several agents: a PettingZoo id, a callable that makes a PettingZoo env, such an
            env, or a :class:`rlox.protocols.MultiAgentVecEnv`; of one agent: what PPO takes.
        env_fn: makes a PettingZoo env; it is taken in the place of ``env_id``.
        policy: of several agents a callable from a view's nested observation space and the action
            space of an agent to a module with the methods of
            :class:`rlox.protocols.OnPolicyActor`; of one agent see
            :class:`rlox.rollouts.actor_critic.ActorCritic`; ``None``: networks that fit the spaces.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: of the class :attr:`config_class`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate``, ``clip_eps``,
            ``ent_coef`` or ``critic_learning_rate``; they win over the config and are not saved.
        objective: minimised by every policy in place of the clipped surrogate; see
            :class:`rlox.learners.tasks.Objective`. It brings all numbers of its loss.
        added_losses: ``{"policy": function}`` with functions ``(policy, minibatch) -> scalar`` that
            are added to the loss of every policy; see :mod:`rlox.learners.terms`.
        config_kwargs: options of the config, which win over ``config``. ``n_agents``: number of
            agents, ``None`` takes the env's; ``n_envs``: number of envs stepped together, an env
            that cannot be copied brings its own; ``seed``: fixes every random draw, ``None`` draws
            it from entropy.

    Raises:
        BackendError: the learner backend cannot learn the policies.
        ConfigError: an option is unknown, out of range, or contradicts the env, the policy or the
            objective.
        EnvError: the env cannot be built.
        SpaceError: the env's spaces need a ``policy`` of your own.
    """

    metrics_class: ClassVar[type[Any]]
    """Dataclass of what an iteration reports."""
    config: Any
    added_losses: AddedLosses
    learning: OneAgent | Team
    """What collects; it acts and keeps the envs too."""

    def __init__(
        self,
        env_id: Any = None,
        *,
        env_fn: Callable[[], Any] | None = None,
        policy: Any = None,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        config: Config | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        objective: Objective | None = None,
        added_losses: Losses | None = None,
        **config_kwargs: Any,
    ) -> None:
        resolved = resolve_config(self.config_class, config, **config_kwargs)
        if policy is not None:
            refuse_network_options(NETWORK_OPTIONS, resolved, config_kwargs)
        require_objective(objective, LOSS_OPTIONS, resolved, config_kwargs, schedules)
        source = env_id if env_fn is None else env_fn
        super().__init__(
            source, config=fit_to_env(resolved, source), callbacks=callbacks, logger=logger
        )
        cfg = self.config
        own_rate = () if cfg.critic_learning_rate is None else ("critic_learning_rate",)
        scheduled = ("learning_rate", "clip_eps", "ent_coef", *own_rate)
        self.schedules = Schedules(cfg, scheduled, schedules)
        self.own_objective = objective
        self.added_losses = AddedLosses(added_losses, ("policy",))
        self.device = find_device(cfg.device)
        self.policies: dict[str, Any] = {}
        self._first = self._objective(Schedules(cfg, scheduled).at(0, 0))
        self._learners: dict[str, tuple[RolloutTask, ChosenLearner]] = {}
        self.learning = (Team if self._has_team() else OneAgent)(self, policy)
        self.collector, self.actor = self.learning.collector, self.learning.actor

    @staticmethod
    @abstractmethod
    def make_objective(config: Any, rates: Mapping[str, float]) -> Objective:
        """Return what the policies minimise at these values of the schedules."""

    def add_policy(self, name: str, policy: Any, optimizer: Any, **more: Any) -> ChosenLearner:
        """Return what learns a policy from its rollouts.

        Args:
            name: of the policy.
            policy: on the device.
            optimizer: of its parameters.
            more: fields of the task.
        """
        cfg = self.config
        task = RolloutTask(
            self._first,
            policy,
            optimizer,
            update=minimize_over_epochs,
            device=self.device,
            n_epochs=cfg.n_epochs,
            batch_size=cfg.batch_size,
            target_kl=cfg.target_kl,
            generator=self.streams.torch("minibatches"),
            added_losses=self.added_losses,
            **more,
        )
        learner = choose_learner(cfg.backend, task)
        self.policies[name], self.optimizers[name] = policy, optimizer
        self._learners[name] = task, learner
        self.learner = self.learner or learner
        return learner

    def _objective(self, rates: Mapping[str, float]) -> Objective:
        """Return the user's own objective, or the algorithm's of now."""
        own: Objective | None = self.own_objective
        return self.make_objective(self.config, rates) if own is None else own

    def iterate(self, hooks: Hooks) -> Any:
        """Collect T steps of N envs, and minimise each policy's objective for K epochs."""
        rates = self.schedules.at(self.clock.env_steps, self.clock.target_env_steps)
        objective = self._objective(rates)
        with torch_threads(self.config.torch_threads):
            batches = self.learning.collect(hooks)
            reports = [
                self._update(name, batch, objective, rates, hooks)
                for name, batch in batches.items()
                if not self._says_nothing(batch)
            ]
        terms = {key: float(np.mean([one[key] for one in reports])) for key in (reports or [{}])[0]}
        statistics = self.collector.statistics
        return make_metrics(
            self.metrics_class,
            terms,
            self.added_losses,
            mean_reward=statistics.mean_return,
            mean_episode_length=statistics.mean_length,
            episodes=float(statistics.finished),
            learning_rate=rates["learning_rate"],
            **self.learning.metrics(),
        )

    def _says_nothing(self, batch: RolloutBatch) -> bool:
        """Return whether there is one advantage alone, which cannot be standardised."""
        cfg = self.config
        return cfg.normalize_advantages and 1 in (cfg.batch_size, len(batch.returns))

    def _update(
        self,
        name: str,
        batch: RolloutBatch,
        objective: Objective,
        rates: Mapping[str, float],
        hooks: Hooks,
    ) -> dict[str, float]:
        """Let a policy learn from its rollout, and return the means of the loss's terms."""
        cfg, (task, learner) = self.config, self._learners[name]
        if isinstance(task.optimizer, ActorCriticOptimizer):
            task.optimizer.critic_learning_rate = rates["critic_learning_rate"]
        size = min(cfg.batch_size, len(batch.returns))
        if batch.initial_state is None:  # no row is left alone at the end
            while size > 2 and len(batch.returns) % size == 1:
                size -= 1
        if size != cfg.batch_size:  # or so few agents acted
            learner = choose_learner(learner.backend, replace(task, batch_size=size))
        terms = learner.update(batch, objective, rates["learning_rate"], hooks)
        return {**terms, "explained_variance": batch.explained_variance()}

    def state_dict(self) -> dict[str, Any]:
        """Return policies, optimisers, envs and memories."""
        return self.learning.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.learning.load_state_dict(state)


class Team:
    """The policies, envs and memories of several agents.

    Args:
        algorithm: it gets the policies, and frees the envs.
        policy: the user's own, or ``None``.
    """

    def __init__(self, algorithm: Any, policy: Callable[..., nn.Module] | None) -> None:
        cfg = algorithm.config
        for name in ONE_AGENT_OPTIONS:
            if changed(cfg, name):
                raise ConfigError(
                    f"{name}={getattr(cfg, name)!r} is not supported for several agents; leave it "
                    "out"
                )
        _check_memory(cfg)
        if isinstance(policy, nn.Module) or (policy is not None and not callable(policy)):
            raise TypeError(
                "policy must be a callable (observation_space, action_space) -> module for several "
                f"agents, one module for each policy, got {type(policy).__name__}"
            )
        self._algorithm = algorithm
        env = algorithm.make_envs(vectorization=cfg.vectorization)
        if (
            cfg.critic in ("observations", "local")
            and fixed_env_count(algorithm.env_source) is None
        ):
            leave_out = getattr(env, "leave_out_state", None)  # of envs that may fail to give one
            if leave_out is not None:
                leave_out()
        preprocessor = None
        if cfg.normalize_observations or cfg.frame_stack > 1:
            preprocessor = TeamPreprocessor(
                env, normalize=cfg.normalize_observations, frame_stack=cfg.frame_stack
            )
        self.views = make_views(preprocessor or env, cfg.critic, cfg.share_parameters)
        seed = algorithm.streams.seeds("envs", 1)[0]
        self.collector = MultiAgentCollector(
            RunningTeams(env, seed, preprocessor=preprocessor),
            self.views,
            device=algorithm.device,
            team_reward=cfg.team_reward,
            gamma=cfg.gamma,
            gae_lambda=cfg.gae_lambda,
            normalize_rewards=cfg.normalize_rewards,
        )
        for view in self.views:
            made = self._make_policy(view, policy)
            if cfg.opponents != "none":
                self.collector.pool = self._make_pool(made, env.n_envs)
            optimizer = make_optimizer(made, cfg)
            algorithm.add_policy(view.name, made, optimizer, collector=self.collector)
        self.actor = TeamActor(
            self.views,
            algorithm.policies,
            env,
            algorithm.streams.torch("predict"),
            algorithm.device,
            preprocessor=preprocessor,
        )

    def _make_policy(self, view: PolicyView, policy: Callable[..., nn.Module] | None) -> Any:
        cfg, device = self._algorithm.config, self._algorithm.device
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
        made.to(device)
        set_compute_dtype(made, cfg.compute_dtype)
        if policy is not None:
            try_actor(made, view.space, view.group.action_space, device)
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
        policies, pool = self._algorithm.policies, self.collector.pool
        if pool is not None:
            (policy,) = policies.values()
            pool.freeze(policy, self._algorithm.clock.env_steps)
        preprocessor = self.collector.envs.preprocessor
        with nullcontext() if preprocessor is None else preprocessor.sharing():
            n_steps = self._algorithm.config.n_steps
            batches = self.collector.collect(policies, n_steps, hooks.env_step)
        hooks.rollout_end(batches)
        return batches

    def metrics(self) -> dict[str, Any]:
        """Return the mean return of each agent, and the learner's rating where it plays a pool."""
        returns, pool = self.collector.statistics.agent_returns, self.collector.pool
        rating = {}
        if pool is not None:
            rating = {"elo": pool.rating, "pool_policies": float(len(pool.members))}
        return {
            "agents": {f"return/{agent}": value for agent, value in returns.items()},
            "optional": rating,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return policies, optimisers, envs and memories."""
        algorithm, collector = self._algorithm, self.collector
        return {
            "policies": {name: module_state(one) for name, one in algorithm.policies.items()},
            "optimizers": {name: one.state_dict() for name, one in algorithm.optimizers.items()},
            "envs": collector.envs.state_dict(),
            "rewards": {name: one.state_dict() for name, one in collector.reward_scalers.items()},
            "memory": collector.memory_state(),
            "pool": None if collector.pool is None else collector.pool.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            CheckpointError: the policies are another team's, or it was saved with another choice of
                what is normalised.
        """
        policies, collector = self._algorithm.policies, self.collector
        if set(state["policies"]) != set(policies):
            raise CheckpointError(
                f"it holds the policies {', '.join(sorted(state['policies']))}, and the env's team "
                f"has {', '.join(sorted(policies))}; pass the env that it was trained on"
            )
        for name, policy in policies.items():
            load_module_state(policy, state["policies"][name])
            self._algorithm.optimizers[name].load_state_dict(state["optimizers"][name])
        scalers = collector.reward_scalers
        require_same_option("normalize_rewards", bool(state.get("rewards")), bool(scalers))
        exact = collector.envs.load_state_dict(state["envs"])
        for name, scaler in scalers.items():
            scaler.load_state_dict(state["rewards"][name], keep_running=exact)
        collector.load_memory_state(state.get("memory", {}) if exact else {})
        if collector.pool is not None and state.get("pool") is not None:
            collector.pool.load_state_dict(state["pool"], keep_games=exact)


def _check_memory(config: Any) -> None:
    """Check what a memory needs of a team's rollouts, whose rows only the env says."""
    if config.recurrent == "none":
        return
    if config.batch_size % config.n_steps:
        raise ConfigError(
            f"batch_size {config.batch_size} is no multiple of n_steps {config.n_steps}; the "
            "minibatches of a recurrent policy are whole sequences"
        )
    if config.opponents != "none":
        raise ConfigError(
            f"opponents='{config.opponents}' needs policies without a memory, got "
            f"recurrent='{config.recurrent}'; leave one of them out"
        )
