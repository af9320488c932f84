"""The frame of the on-policy algorithms for teams, with one policy per group or agent."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

from rlox.batches.rollout import RolloutBatch
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, changed, resolve_config
from rlox.config.schedules import Schedules
from rlox.envs import fixed_env_count
from rlox.envs.running import require_same_option
from rlox.errors import CheckpointError, ConfigError
from rlox.learners import RolloutTask, choose_learner
from rlox.logging import LoggerCallback
from rlox.losses import AddedLosses, ClippedSurrogate, Losses, Objective, make_metrics, mean_by_name
from rlox.networks.validate import refuse_network_options, require_actor, try_actor
from rlox.nn import (
    Layers,
    find_device,
    load_parts_state,
    parts_state,
    set_compute_dtype,
    set_matmul_precision,
)
from rlox.rollouts import (
    NETWORK_OPTIONS,
    EnvMemory,
    RolloutAlgorithm,
    fit_to_env,
    minimize_over_epochs,
    require_objective,
)
from rlox.training.hooks import Hooks
from torch import nn

from rlox_marl.collector import MultiAgentCollector, RunningTeams
from rlox_marl.policies import ActorCriticOptimizer, RecurrentTeamPolicy, TeamPolicy, make_optimizer
from rlox_marl.self_play import OpponentPool
from rlox_marl.team_algorithm import TeamAlgorithm, has_team
from rlox_marl.views import PolicyView, TeamPreprocessor, make_views

LOSS_OPTIONS = (*(field.name for field in fields(ClippedSurrogate)), "huber_delta")
"""The coefficients of the algorithm's own objective."""

TEAM_OPTIONS = (
    "share_parameters", "team_reward", "normalize_values", "huber_delta", "critic_learning_rate",
    "opponents",
)  # fmt: skip
"""The options that need several agents, or that PPO does not have."""


class TeamRolloutAlgorithm(TeamAlgorithm):
    """Collects rollouts of several agents, and trains each policy on the steps of its agents.

    The other arguments are those of :class:`rlox_marl.team_algorithm.TeamAlgorithm`; ``env_id`` may
    also be an env of one agent, as for PPO.

    Args:
        policy: for several agents, a callable that takes a view's nested observation space and an
            agent's action space and returns a module with the methods of
            :class:`rlox.protocols.OnPolicyActor`; for one agent see
            :class:`rlox.rollouts.RolloutAlgorithm`; ``None``: networks that fit the spaces.
        objective: minimised by every policy instead of the clipped surrogate; see
            :class:`rlox.losses.Objective`. It replaces all loss coefficients.
        added_losses: ``{"policy": function}``; the function ``(policy, minibatch) -> scalar`` is
            added to the loss of every policy; see :mod:`rlox.losses`.

    Raises:
        BackendError: the learner backend does not support the policies.
        ConfigError: an option contradicts the policy or the objective.
        SpaceError: the env's spaces need a ``policy`` of your own.
    """

    metrics_class: ClassVar[type[Any]]
    """Dataclass of an iteration's metrics."""
    config: Any
    added_losses: AddedLosses
    collector: MultiAgentCollector

    def __new__(
        cls, env_id: Any = None, *given: Any, env_fn: Any = None, config: Any = None, **options: Any
    ) -> Any:
        """Return an algorithm for a team or, for an env of one agent, PPO under the same name."""
        source = env_id if env_fn is None else env_fn
        own = cls.config_class.model_fields.keys() & options.keys()  # not a subclass's arguments
        chosen = {name: options[name] for name in own}
        if has_team(source, resolve_config(cls.config_class, config, **chosen)):
            return super().__new__(cls)
        one: Any = _of_one_agent(cls)(source, *given, config=config, **options)
        one.env_fn = env_fn
        return one

    def __init__(
        self,
        env_id: Any = None,
        *,
        env_fn: Callable[[], Any] | None = None,
        policy: Callable[..., nn.Module] | None = None,
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
        self.own_objective, self.env_fn = objective, env_fn
        cfg = self.config
        if changed(cfg, "clip_rewards"):
            raise ConfigError(
                f"clip_rewards={cfg.clip_rewards!r} is not supported for several agents; leave it "
                "out"
            )
        if cfg.recurrent != "none" and cfg.batch_size % cfg.n_steps:  # whose rows the env says
            raise ConfigError(
                f"batch_size {cfg.batch_size} is not a multiple of n_steps {cfg.n_steps}; the "
                "minibatches of a recurrent policy are whole sequences"
            )
        if cfg.recurrent != "none" and cfg.opponents != "none":
            raise ConfigError(
                f"opponents='{cfg.opponents}' needs policies without a memory, got "
                f"recurrent='{cfg.recurrent}'; leave one of them out"
            )
        if isinstance(policy, nn.Module) or (policy is not None and not callable(policy)):
            raise TypeError(
                "policy must be a callable (observation_space, action_space) -> module for several "
                f"agents, one module for each policy, got {type(policy).__name__}"
            )
        self.schedules = Schedules(cfg, schedules)
        self.added_losses = AddedLosses(added_losses, ("policy",))
        self.device = find_device(cfg.device)
        set_matmul_precision(cfg)
        env = self._make_envs(vectorization=cfg.vectorization)
        if fixed_env_count(self.env_source) is None and cfg.critic in ("observations", "local"):
            leave_out = getattr(env, "leave_out_state", None)  # of envs that may fail to give one
            if leave_out is not None:
                leave_out()
        preprocessor = None
        if cfg.normalize_observations or cfg.frame_stack > 1:
            preprocessor = TeamPreprocessor(
                env, normalize=cfg.normalize_observations, frame_stack=cfg.frame_stack
            )
        self.views = make_views(preprocessor or env, cfg.critic, cfg.share_parameters)
        seed = self.streams.seeds("envs", 1)[0]
        envs = RunningTeams(env, seed, preprocessor=preprocessor)
        names = ("team_reward", "gamma", "gae_lambda", "normalize_rewards")
        options: Any = {name: getattr(cfg, name) for name in names}
        self.collector = MultiAgentCollector(envs, self.views, device=self.device, **options)
        first = self._objective(Schedules(cfg).at(0, 0))
        self.policies, self._learners = {}, {}
        for view in self.views:
            made = self.policies[view.name] = self._make_policy(view, policy)
            if cfg.opponents != "none":
                self.collector.pool = self._make_pool(made, env.n_envs)
            optimizer: Any = make_optimizer(made, cfg)
            self.optimizers[view.name] = optimizer
            task = RolloutTask(
                first, made, optimizer, self.collector, minimize_over_epochs, self.device,
                n_epochs=cfg.n_epochs, batch_size=cfg.batch_size, target_kl=cfg.target_kl,
                generator=self.streams.torch("minibatches"), added_losses=self.added_losses,
            )  # fmt: skip
            self._learners[view.name] = task, choose_learner(cfg.backend, task)
        self.learner = self._learners[self.views[0].name][1]
        self._can_act(env, preprocessor)

    @staticmethod
    @abstractmethod
    def make_objective(config: Any, rates: Mapping[str, float]) -> Objective:
        """Return the policies' objective at the current values of the schedules."""

    def _make_policy(self, view: PolicyView, policy: Callable[..., nn.Module] | None) -> Any:
        cfg, device = self.config, self.device
        generator = self.streams.torch("policy")
        made: Any
        if policy is None:
            kind: Any = TeamPolicy
            if cfg.recurrent != "none":
                kind = partial(RecurrentTeamPolicy, kind=cfg.recurrent, memory_size=cfg.memory_size)
            kind = partial(kind, network=cfg.network, normalize_values=cfg.normalize_values)
            made = kind(view, hidden=Layers.of(cfg), generator=generator)
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
        cfg, streams = self.config, self.streams
        if len(self.views) != 1 or len(self.views[0].columns) != 2:
            agents = [agent for view in self.views for agent in view.agents]
            raise ConfigError(
                "opponents need a game of two agents with equal spaces and "
                f"share_parameters='group', got {len(self.views)} policies for "
                f"{', '.join(agents)}; leave opponents out"
            )
        return OpponentPool(
            policy, n_envs, size=cfg.pool_size, drawn=cfg.opponents, share=cfg.pool_share,
            interval=cfg.pool_interval, rng=streams.numpy("opponents"),
            generator=streams.torch("opponents"),
        )  # fmt: skip

    def _objective(self, rates: Mapping[str, float]) -> Objective:
        """Return the user's objective, or the algorithm's current one."""
        own: Objective | None = self.own_objective
        return self.make_objective(self.config, rates) if own is None else own

    def iterate(self, hooks: Hooks) -> Any:
        """Collect T steps from N envs, and minimise each policy's objective for K epochs."""
        rates = self.schedules.at(self.clock.env_steps, self.clock.target_env_steps)
        objective = self._objective(rates)
        pool, preprocessor = self.collector.pool, self.collector.envs.preprocessor
        if pool is not None:
            (policy,) = self.policies.values()
            pool.freeze(policy, self.clock.env_steps)
        with nullcontext() if preprocessor is None else preprocessor.sharing():
            batches = self.collector.collect(self.policies, self.config.n_steps, hooks.env_step)
        hooks.rollout_end(batches)
        reports = []
        for name, batch in batches.items():
            optimizer: Any = self.optimizers[name]
            if isinstance(optimizer, ActorCriticOptimizer):
                optimizer.critic_learning_rate = rates["critic_learning_rate"]
            learner = self._learner_of(name, batch)
            learnt = learner.update(batch, objective, rates["learning_rate"], hooks)
            reports.append({**learnt, "explained_variance": batch.explained_variance()})
        terms = mean_by_name(reports)
        seen: dict[str, Any] = self.collector.statistics.metrics()
        seen["optional"] = {} if pool is None else pool.metrics()
        seen["learning_rate"] = rates["learning_rate"]
        return make_metrics(self.metrics_class, terms, self.added_losses, **seen)

    def _learner_of(self, name: str, batch: RolloutBatch) -> Any:
        """Return a policy's learner for its rollout, which may have few or odd rows."""
        cfg, (task, learner) = self.config, self._learners[name]
        size = min(cfg.batch_size, len(batch.returns))
        if batch.initial_state is None:  # avoid a last minibatch of one row
            while size > 2 and len(batch.returns) % size == 1:
                size -= 1
        if size == cfg.batch_size:
            return learner
        return choose_learner(learner.backend, replace(task, batch_size=size))

    def state_dict(self) -> dict[str, Any]:
        """Return policies, optimisers, envs and memories."""
        collector = self.collector
        return {
            "policies": parts_state(self.policies),
            "optimizers": parts_state(self.optimizers),
            "envs": collector.envs.state_dict(),
            "rewards": parts_state(collector.reward_scalers),
            "memory": {
                name: {key: part.cpu().numpy().copy() for key, part in vars(memory).items()}
                for name, memory in collector.memory.items()
            },
            "pool": None if collector.pool is None else collector.pool.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            CheckpointError: the policies belong to another team, or the normalisation options
                differ.
        """
        policies, collector = self.policies, self.collector
        if set(state["policies"]) != set(policies):
            raise CheckpointError(
                f"it holds the policies {', '.join(sorted(state['policies']))}, and the env's team "
                f"has {', '.join(sorted(policies))}; pass the env that it was trained on"
            )
        load_parts_state(policies, state["policies"])
        load_parts_state(self.optimizers, state["optimizers"])
        scalers = collector.reward_scalers
        require_same_option("normalize_rewards", bool(state.get("rewards")), bool(scalers))
        exact = collector.envs.load_state_dict(state["envs"])
        for name, scaler in scalers.items():
            scaler.load_state_dict(state["rewards"][name], keep_running=exact)
        memories = state.get("memory", {}) if exact else {}
        collector.memory = {n: EnvMemory.of(one, self.device) for n, one in memories.items()}
        if collector.pool is not None and state.get("pool") is not None:
            collector.pool.load_state_dict(state["pool"], keep_games=exact)


class OneAgent(RolloutAlgorithm):
    """A team algorithm in an env of one agent: PPO, with any learner backend.

    Raises:
        ConfigError: an option needs several agents.
    """

    objective_class = ClippedSurrogate

    def _resolve(self, env_id: Any, config: Any, options: dict[str, Any]) -> Config:
        cfg: Any = super()._resolve(env_id, config, options)
        if cfg.n_agents not in (None, 1):
            raise ConfigError(
                f"n_agents is {cfg.n_agents}, but the env has one agent; pass a PettingZoo env, or "
                "leave n_agents out"
            )
        named = [name for name in TEAM_OPTIONS if changed(cfg, name)]
        if cfg.critic not in ("auto", "local"):
            named.append("critic")
        if named:
            raise ConfigError(
                f"{named[0]}={getattr(cfg, named[0])!r} needs an env of several agents; leave it "
                "out for one agent, whose training is PPO's"
            )
        return cfg.replace(n_agents=1)  # type: ignore[no-any-return]

    # explicit arguments, because evaluations look for state and masks in the signature
    def predict(
        self, obs: Any, deterministic: bool = True, agent_idx: Any = 0, *, state: Any = UNSET,
        episode_start: Any = None, action_masks: Any = None,
    ) -> Any:  # fmt: skip
        """Return an action or actions of the agent; see the base class."""
        if agent_idx != 0:
            raise ValueError(f"agent_idx must be 0 for an env of one agent, got {agent_idx!r}")
        given = {"episode_start": episode_start, "action_masks": action_masks}
        return super().predict(obs, deterministic, state=state, **given)


@cache
def _of_one_agent(cls: type[TeamRolloutAlgorithm]) -> type[OneAgent]:
    """Return a team algorithm's class for one agent, whose objects are instances of both.

    It is not a subclass, because one agent lacks a team's attributes.

    Raises:
        ConfigError: a class outside this package defines methods, which PPO would ignore.
    """
    names = ("__doc__", "__module__", "name", "config_class", "metrics_class", "arguments")
    declared = {*names, *cls.config_class.model_fields}
    for base in cls.__mro__[: cls.__mro__.index(TeamRolloutAlgorithm)]:
        own = [n for n in vars(base) if n == "__init__" or not n.startswith(("__", "_abc_"))]
        extra = [name for name in own if name not in declared]
        if extra and not base.__module__.startswith("rlox_marl."):
            raise ConfigError(
                f"{cls.__name__} defines {extra[0]}, and an env of one agent is learnt by "
                "PPO without it; derive from rlox.algorithms.PPO for one agent"
            )
    one = type(cls.__name__, (OneAgent,), {name: getattr(cls, name) for name in names})
    cls.register(one)
    return one
