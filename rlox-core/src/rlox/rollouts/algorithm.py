"""The base class of on-policy algorithms, which consist of an objective and a config.

:meth:`RolloutAlgorithm.iterate` is one iteration, and :func:`minimize_over_epochs` its gradient
steps in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy.typing as npt
import torch
from gymnasium import Space
from torch import nn

from rlox.algorithm import Algorithm
from rlox.batches.rollout import RolloutBatch, Unroll, estimate_advantages
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, changed, given_options
from rlox.config.schedules import Schedules
from rlox.deployment import PolicyData
from rlox.envs.make import fixed_env_count
from rlox.envs.running import RunningEnvs
from rlox.envs.tensors import TensorVecEnv
from rlox.errors import ConfigError
from rlox.kernels import kernel
from rlox.learners.rollouts import ChosenLearner, RolloutTask, choose_learner
from rlox.learners.tensors import TensorCollector
from rlox.logging import LoggerCallback
from rlox.losses import (
    AdaptiveRate,
    AddedLosses,
    Losses,
    Objective,
    fields_of,
    make_metrics,
    make_objective,
    mean_terms,
    passes_target_kl,
)
from rlox.networks.actor_critics import make_policy
from rlox.networks.predict import predict, predict_with_memory
from rlox.networks.validate import LAYER_OPTIONS, refuse_network_options, require_actor, try_actor
from rlox.nn import (
    FlatOptimizer,
    Layers,
    find_device,
    layer_data,
    load_module_state,
    module_state,
    set_compute_dtype,
    set_matmul_precision,
    torch_threads,
)
from rlox.protocols import RecurrentActor
from rlox.rollouts.collector import RolloutCollector
from rlox.spaces import ActionRows, remembered
from rlox.training.hooks import Hooks

ConfigT = TypeVar("ConfigT", bound=Config)

PolicyMaker = Callable[[Space[Any], Space[Any]], nn.Module]
"""Maps the observation space and the action space of one env to a policy."""

NETWORK_OPTIONS = ("recurrent", "memory_size", "network", "critic_obs", *LAYER_OPTIONS)
"""Options of the default networks."""


@dataclass(frozen=True, kw_only=True)
class RolloutMetrics:
    """Metrics of one iteration; losses are means over its minibatches."""

    mean_reward: float
    """Mean return of the last 100 finished episodes; NaN before the first."""
    mean_episode_length: float
    """Mean length of the same episodes in env steps."""
    episodes: float
    """Number of episodes finished so far."""
    policy_loss: float
    value_loss: float
    entropy: float
    """In nats."""
    learning_rate: float
    added: Mapping[str, float] = field(default_factory=dict)
    """Means of the user's added losses, and of objective terms without a field here."""


class RolloutAlgorithm(Algorithm):
    """Steps N envs T times with a policy, learns from the rollout, and starts over.

    A subclass declares its objective and metrics; anything else special goes into its own
    :meth:`rollout`, :meth:`make_collector` or :meth:`make_optimizer`. Its config has the
    options of :class:`rlox.config.RolloutConfig`; ``n_epochs``, ``batch_size`` and ``target_kl``
    are optional, and without them one step is taken on the whole rollout.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env.
        policy: a ``torch.nn.Module`` with the methods of :class:`rlox.protocols.OnPolicyActor` or
            of :class:`rlox.protocols.RecurrentActor`, or a callable that makes one from the
            observation space and the action space of one env; an attribute ``generator`` that is
            ``None`` is set to the run's random stream.
            ``None`` makes networks that fit the spaces.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a config of the algorithm's class, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for options that may be schedules; they override
            the config and are not saved in checkpoints.
        objective: replaces the algorithm's own; see :class:`rlox.losses.Objective`. It replaces
            all loss coefficients.
        added_losses: a function ``(policy, minibatch) -> scalar``, several, or
            ``{"policy": function}``, which are added to the loss; see :mod:`rlox.losses`.
        options: options of the config, such as ``n_envs`` and ``seed``; they override ``config``.
            An env that cannot be copied determines ``n_envs``.

    Raises:
        ConfigError: an option is unknown or out of range, ``policy`` fails on observations of the
            env or returns other shapes, or ``seq_len`` is given with a policy without memory.
        EnvError: the env cannot be built.
        SpaceError: the env's spaces need a custom ``policy``.
        TypeError: ``policy`` is not a module, or lacks a method.
    """

    objective_class: ClassVar[type[Objective]]
    """Frozen dataclass to minimise, an :class:`rlox.losses.Objective`. Fields with the name of an
    option take its value."""

    metrics_class: ClassVar[type[RolloutMetrics]] = RolloutMetrics

    learner: ChosenLearner
    added_losses: AddedLosses
    collector: Any

    def __init__(
        self,
        env_id: Any,
        *,
        policy: nn.Module | PolicyMaker | None = None,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        config: Config | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        objective: Objective | None = None,
        added_losses: Losses | None = None,
        **options: Any,
    ) -> None:
        resolved = self._resolve(env_id, config, options)
        if policy is not None:
            refuse_network_options(NETWORK_OPTIONS, resolved, options)
        numbers = [number.name for number in fields_of(self.objective_class)]
        require_objective(objective, numbers, resolved, options, schedules)
        super().__init__(env_id, config=resolved, callbacks=callbacks, logger=logger)
        cfg = self.config
        self.schedules = Schedules(cfg, schedules)
        self.own_objective = objective
        self.device = find_device(cfg.device)
        set_matmul_precision(cfg)
        self.collector = self.make_collector()
        self.resources.callback(self.collector.close)
        self.policy = self._make_policy(policy)
        # asked once: the protocol's instance check takes a sixth of a prediction
        self._has_memory = isinstance(self.policy, RecurrentActor)
        if (length := getattr(cfg, "seq_len", None)) is not None and not self._has_memory:
            raise ConfigError(
                f"seq_len is of policies with a memory, got seq_len={length} and "
                f"{type(self.policy).__name__}; set recurrent='lstm' or 'gru', or leave seq_len out"
            )
        self.optimizer = FlatOptimizer(
            self.policy, self.make_optimizer(), max_grad_norm=cfg.max_grad_norm
        )
        self.optimizers = {"policy": self.optimizer}
        self.added_losses = AddedLosses(added_losses, self.optimizers)
        target = getattr(cfg, "adaptive_kl", None)
        self.adaptive_rate = None if target is None else AdaptiveRate(target, self.device)
        draws = None
        if isinstance(self.collector, TensorCollector):
            draws = self.device
            if hasattr(self.policy, "generator"):
                self.policy.generator = self.streams.torch("actions", draws)
        task = RolloutTask(
            self._objective(Schedules(cfg).at(0, 0)),
            self.policy,
            self.optimizer,
            self.collector,
            minimize_over_epochs,
            self.device,
            n_epochs=getattr(cfg, "n_epochs", 1),
            batch_size=getattr(cfg, "batch_size", None),
            target_kl=getattr(cfg, "target_kl", None),
            adaptive_rate=self.adaptive_rate,
            generator=self.streams.torch("minibatches", draws),
            actions=self.streams.numpy("native actions"),
            added_losses=self.added_losses,
            progress=self.clock if cfg.backend == "auto" else None,
        )
        self.learner = choose_learner(cfg.backend, task)
        self._gae = kernel("compute_gae_time_major")
        self._complete()

    def _resolve(self, env_id: Any, config: Any, options: dict[str, Any]) -> Config:
        """Return the config from the constructor's arguments."""
        given = given_options(self.config_class, config, **options)
        return resolve_for_env(self.config_class, given, fit_to_env, env_id)

    def make_collector(self) -> Any:
        """Return the collector that steps the envs, an :class:`rlox.learners.rollouts.Unroller`.

        It also has the attributes and methods of :class:`rlox.rollouts.collector.RolloutCollector`
        that predictions and checkpoints need.
        """
        cfg, envs = self.config, RunningEnvs.of(self)
        if isinstance(envs.env, TensorVecEnv):
            if cfg.frame_stack > 1:
                raise ConfigError(
                    f"frame_stack is for envs of arrays, got {cfg.frame_stack} for "
                    f"{type(envs.env.tensors).__name__}, an env of tensors; leave it out"
                )
            seed = self.streams.seeds("envs", 1)[0]
            make: Any = partial(TensorCollector, envs.env, seed=seed)
        else:
            make = partial(RolloutCollector, envs, frame_stack=cfg.frame_stack)
        return make(
            device=self.device,
            gamma=cfg.gamma,
            gae_lambda=cfg.gae_lambda,
            normalize_observations=cfg.normalize_observations,
            normalize_rewards=cfg.normalize_rewards,
            clip_rewards=cfg.clip_rewards,
            seq_len=getattr(cfg, "seq_len", None),
        )

    def _make_policy(self, given: nn.Module | PolicyMaker | None) -> Any:
        """Return the policy: the user's own, after a check that it fits, or the default."""
        cfg = self.config
        spaces = self.collector.observation_space, self.collector.env.action_space
        generator = self.streams.torch("policy")
        policy: Any = given
        if given is None:
            names = {name: getattr(cfg, name) for name in ("recurrent", "memory_size", "network")}
            names["critic_obs"] = getattr(cfg, "critic_obs", ())
            policy = make_policy(*spaces, hidden=Layers.of(cfg), **names, generator=generator)
        elif callable(given) and not isinstance(given, nn.Module):
            policy = given(*spaces)
        require_actor(policy)
        if getattr(policy, "generator", ...) is None:
            setattr(policy, "generator", generator)  # noqa: B010
        policy.to(self.device)
        if given is not None:
            try_actor(policy, *spaces, self.device)
        set_compute_dtype(policy, getattr(cfg, "compute_dtype", "float32"))
        return policy

    def make_optimizer(self) -> Any:
        """Return the factory of the policy's optimiser; see :class:`rlox.nn.FlatOptimizer`."""
        return partial(torch.optim.Adam, eps=getattr(self.config, "adam_eps", 1e-8), fused=True)

    def _complete(self) -> None:
        """Create the subclass's own parts, after everything else."""

    def iterate(self, hooks: Hooks) -> Any:
        """Collect T steps of N envs, estimate advantages, and minimise the objective.

        A learner backend faster than torch replaces the first and the last of these steps; the last
        is :func:`minimize_over_epochs`.
        """
        rates = self.schedules.at(self.clock.env_steps, self.clock.target_env_steps)
        objective, learning_rate = self._objective(rates), rates["learning_rate"]
        batch, seen = self.rollout(hooks)
        hooks.rollout_end(batch)
        terms = self.learner.update(batch, objective, learning_rate, hooks)
        if self.adaptive_rate is not None:
            learning_rate *= float(self.adaptive_rate.factor)
        return make_metrics(
            self.metrics_class,
            {**terms, **seen},
            self.added_losses,
            **self.collector.statistics.metrics(),
            learning_rate=learning_rate,
        )

    def rollout(self, hooks: Hooks) -> tuple[RolloutBatch | Unroll, dict[str, float]]:
        """Return the data to learn from, and metrics of it."""
        cfg = self.config
        unroll = self.learner.collect(cfg.n_steps, hooks)
        batch = estimate_advantages(unroll, self.policy, cfg.gamma, cfg.gae_lambda, self._gae)
        return batch, {"explained_variance": batch.explained_variance()}

    def _objective(self, rates: Mapping[str, float]) -> Objective:
        """Return the objective at these values of the options that may be schedules."""
        own: Objective | None = self.own_objective
        return make_objective(self.objective_class, self.config, rates) if own is None else own

    def predict(
        self,
        obs: Any,
        deterministic: bool = True,
        *,
        state: Any = UNSET,
        episode_start: npt.ArrayLike | None = None,
        action_masks: npt.ArrayLike | None = None,
    ) -> Any:
        """Return an action for one observation, or actions for a batch.

        Args:
            obs: one observation or a batch (B, *shape), nested like the observation space.
            deterministic: the mode of the action distribution rather than a sample.
            state: frames and the policy's memory of the running episodes: the state that this
                method returned with the last actions, ``None`` at the beginning. If it is left out,
                each observation is an episode's first.
            episode_start: bool or (B,) bools, whether an episode begins with the observation, so
                that its state is cleared; ``None`` clears nothing.
            action_masks: (mask_size,) or (B, mask_size), see ``predict``; ``None`` masks nothing.

        Returns:
            The action or actions, see :func:`rlox.networks.predict.predict`; if ``state`` is given,
            a pair: actions and the next state, ``None`` if there is no state.
        """
        env, preprocessor = self.collector.env, self.collector.preprocessor
        following: dict[str, Any] = {}
        before = {} if state is UNSET else remembered(state)

        def preprocess(batch: Any) -> Any:
            seen = preprocessor.see(batch, before.get("frames"), episode_start)
            if preprocessor.has_frames:
                following["frames"] = seen
            return seen

        common: dict[str, Any] = {
            "action_masks": action_masks,
            "preprocess": None if preprocessor is None else preprocess,
            "generator": self.streams.torch("predict"),
            "device": self.device,
        }
        asked = (self.policy, env.observation_space, env.action_space, obs, deterministic)
        with torch_threads(self.config.torch_threads):
            if self._has_memory:
                actions, following["memory"] = predict_with_memory(
                    *asked, state=before.get("memory"), episode_start=episode_start, **common
                )
            else:
                actions = predict(*asked, **common, mode=self.learner.mode)
        return actions if state is UNSET else (actions, following or None)

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        env = self.collector.env
        return PolicyData(
            algorithm=self.name,
            observation_space=env.observation_space,
            action_space=env.action_space,
            network=layer_data(self.policy),
            preprocessor=self.collector.preprocessor,
            takes_masks=ActionRows(env.action_space).mask_size > 0,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return policy, optimiser, collector and the factor of the learning rate, if any."""
        rate = self.adaptive_rate
        return {
            "policy": module_state(self.policy),
            "optimizer": self.optimizer.state_dict(),
            "collector": self.collector.state_dict(),
            **({} if rate is None else {"rate_factor": float(rate.factor)}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore policy, optimiser and collector."""
        load_module_state(self.policy, state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.collector.load_state_dict(state["collector"])
        if self.adaptive_rate is not None:
            self.adaptive_rate.factor.fill_(state.get("rate_factor", 1.0))


def minimize_over_epochs(
    task: RolloutTask,
    batch: RolloutBatch | Unroll,
    objective: Objective,
    learning_rate: float,
    hooks: Hooks,
) -> dict[str, float]:
    """Minimise the objective for K epochs with minibatches of M rows, or once on all rows.

    Args:
        task: policy, optimiser, and the numbers of epochs and rows.
        batch: the rollout; an unroll only as a whole.
        objective: objective with the current coefficients.
        learning_rate: current learning rate.
        hooks: called after every gradient step.

    Returns:
        Means of the loss's terms over the minibatches.
    """
    collected: list[Any] = []
    for _ in range(task.n_epochs):
        minibatches: Iterable[Any] = (batch,)
        if task.batch_size is not None:
            assert isinstance(batch, RolloutBatch)
            size = min(task.batch_size, len(batch.returns))  # envs may have been lost
            minibatches = batch.sample_minibatches(size, generator=task.generator)
        for minibatch in minibatches:
            loss, terms = objective.loss(task.policy, minibatch)
            collected.append(terms)
            if passes_target_kl(terms, task.target_kl):
                return mean_terms(type(terms), collected)
            loss = task.added_losses.add("policy", loss, task.policy, minibatch)
            rate = learning_rate
            if task.adaptive_rate is not None:
                task.adaptive_rate.follow(terms)
                rate *= float(task.adaptive_rate.factor)
            task.optimizer.step(loss, rate)
            hooks.train_batch(lambda terms=terms: mean_terms(type(terms), [terms]))  # type: ignore[misc]
    return mean_terms(type(collected[0]), collected)


def resolve_for_env(
    cls: type[ConfigT],
    given: Mapping[str, Any],
    fit: Callable[[ConfigT, Any], ConfigT],
    env: Any,
    *of_envs: str,
) -> ConfigT:
    """Return a config whose numbers of rows are checked against those of the env.

    Args:
        cls: its class.
        given: its options.
        fit: fits a config to an env, such as :func:`fit_to_env`.
        env: the user's env.
        of_envs: options besides ``preset`` and ``n_envs`` that ``fit`` reads.
    """
    names = ("preset", "n_envs", *of_envs)
    fixed = fit(cls(**{name: given[name] for name in names if name in given}), env)
    return cls(**{**fixed.given(), **given})


def fit_to_env(config: ConfigT, env: Any) -> ConfigT:
    """Return the config with the number of envs in ``env``, if it cannot be copied.

    Unless the caller chose ``n_steps``, rollouts keep their total number of rows.

    Args:
        config: has the fields ``n_envs`` and ``n_steps``.
        env: the user's env.
    """
    count = fixed_env_count(env)
    sizes: Any = config
    if count is None or count == sizes.n_envs or "n_envs" in config.model_fields_set:
        return config
    n_steps = sizes.n_steps
    if "n_steps" not in config.model_fields_set:
        n_steps = max(sizes.n_envs * sizes.n_steps // count, 1)
    return config.replace(n_envs=count, n_steps=n_steps)


def require_objective(
    objective: Objective | None,
    options: Sequence[str],
    config: Config,
    keywords: Mapping[str, Any],
    schedules: Mapping[str, Callable[[int], float]] | None,
) -> None:
    """Check a user's own objective, which replaces all loss coefficients.

    Args:
        objective: the user's objective.
        options: the coefficients of the algorithm's own objective.
        config: config from the options.
        keywords: options that were passed one by one. Only they count if the config has every
            option, as a saved one does.
        schedules: the user's schedules.

    Raises:
        ConfigError: an option or a schedule would have no effect.
        TypeError: the objective has no method ``loss``.
    """
    if objective is None:
        return
    if not callable(getattr(objective, "loss", None)):
        raise TypeError(
            "objective must have a method loss(policy, minibatch) -> (scalar, terms), got "
            f"{objective!r}"
        )
    saved = config.model_fields_set == set(type(config).model_fields)
    given = keywords if saved else config.given()
    for name in options:
        if (name in given and changed(config, name)) or name in (schedules or {}):
            raise ConfigError(
                f"{name} is a number of the algorithm's own objective, and objective= brings all "
                "of its own; leave it out, and set it in the objective"
            )
