"""Synchronous advantage actor-critic (Mnih et al. 2016, algorithm S3, without the asynchrony).

Each iteration collects T steps of N envs and takes one step on

    loss = -mean A log π(a|s) + c_v mean (V - G)² - c_e mean H

Deviations from the paper:
    1. all envs step together and one gradient is taken over all of them (openai/baselines a2c);
    2. advantages are GAE's, which for λ = 1 are the paper's n-step ones;
    3. the gradient's norm is clipped;
    4. policy and value function share no parameters;
    5. if an episode was truncated, the value of its true final observation is bootstrapped from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy.typing as npt
import torch
from rlox.algorithm import Algorithm
from rlox.batches.rollout import RolloutBatch, estimate_advantages
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.config.schedules import Schedules
from rlox.deployment import PolicyData
from rlox.learners.rollouts import ChosenLearner, choose_learner
from rlox.learners.tasks import Objective, RolloutTask
from rlox.learners.terms import AddedLosses, Losses, make_metrics, mean_terms
from rlox.logging import LoggerCallback
from rlox.losses import PolicyGradient
from rlox.networks.validate import refuse_network_options
from rlox.nn import torch_threads
from rlox.rollouts.actor_critic import (
    NETWORK_OPTIONS,
    PolicyMaker,
    fit_to_env,
    make_agent,
    make_objective,
    require_objective,
)
from rlox.training.hooks import Hooks
from torch import nn

from rlox_onpolicy.configs import A2CConfig

if TYPE_CHECKING:
    from rlox_onpolicy.option_types import A2COptions, Unpack

__all__ = ["A2C", "A2CMetrics"]

LOSS_OPTIONS = tuple(field.name for field in fields(PolicyGradient))
"""The options that are numbers of the policy gradient."""

SCHEDULED = ("learning_rate", "ent_coef")


@dataclass(frozen=True)
class A2CMetrics:
    """What one iteration reports."""

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
    explained_variance: float
    """1 - Var(returns - values) / Var(returns) of the rollout; NaN for constant returns."""
    learning_rate: float
    added: Mapping[str, float] = field(default_factory=dict)
    """Means of the user's own losses, and of the terms of an objective of the user's own."""


@final
class A2C(Algorithm):
    """Synchronous advantage actor-critic for discrete and continuous actions.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; ``None`` draws one from entropy.
        policy: see :class:`rlox.rollouts.actor_critic.ActorCritic`.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: an :class:`A2CConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate`` or ``ent_coef``; they win
            over the config and are not saved in checkpoints.
        objective: minimised in place of the policy gradient's loss; see
            :class:`rlox.learners.tasks.Objective`. It brings all numbers of its loss.
        added_losses: ``{"policy": function}`` with functions ``(policy, batch) -> scalar`` that are
            added to the loss; see :mod:`rlox.learners.terms`.
        config_kwargs: options of :class:`A2CConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range, or ``policy`` returns other shapes.
        EnvError: the env cannot be built.
        SpaceError: the env's spaces need a ``policy`` of your own.
    """

    name: ClassVar[str] = "a2c"
    config_class: ClassVar[type[Config]] = A2CConfig
    config: A2CConfig
    learner: ChosenLearner
    added_losses: AddedLosses
    own_objective: Objective | None

    def __init__(
        self,
        env_id: Any,
        n_envs: int | Unset = UNSET,
        seed: int | Unset | None = UNSET,
        policy: nn.Module | PolicyMaker | None = None,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        *,
        config: A2CConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        objective: Objective | None = None,
        added_losses: Losses | None = None,
        **config_kwargs: Unpack[A2COptions],
    ) -> None:
        resolved = resolve_config(A2CConfig, config, n_envs=n_envs, seed=seed, **config_kwargs)
        if policy is not None:
            refuse_network_options(NETWORK_OPTIONS, resolved, config_kwargs)
        require_objective(objective, LOSS_OPTIONS, resolved, config_kwargs, schedules)
        super().__init__(
            env_id, config=fit_to_env(resolved, env_id), callbacks=callbacks, logger=logger
        )
        cfg = self.config
        self.schedules = Schedules(cfg, SCHEDULED, schedules)
        rmsprop = partial(torch.optim.RMSprop, alpha=cfg.rmsprop_alpha, eps=cfg.rmsprop_eps)
        self.agent = make_agent(self, rmsprop, policy)
        self.policy, self.collector = self.agent.policy, self.agent.collector
        self.optimizer = self.agent.optimizer
        self.added_losses = AddedLosses(added_losses, self.optimizers)
        self.own_objective = objective
        self._gradient = make_objective(PolicyGradient, cfg, Schedules(cfg, SCHEDULED).at(0, 0))
        task = RolloutTask(
            objective or self._gradient,
            self.policy,
            self.optimizer,
            self.collector,
            take_one_step,
            self.agent.device,
            actions=self.streams.numpy("native actions"),
            added_losses=self.added_losses,
        )
        self.learner = choose_learner(cfg.backend, task)
        self.agent.mode = self.learner.mode

    def iterate(self, hooks: Hooks) -> A2CMetrics:
        """Collect T steps of N envs, estimate advantages, and take one gradient step."""
        cfg = self.config
        rates = self.schedules.at(self.clock.env_steps, self.clock.target_env_steps)
        objective, learning_rate = self._objective(rates), rates["learning_rate"]
        with torch_threads(cfg.torch_threads):
            unroll = self.learner.collect(cfg.n_steps, hooks)
            batch = estimate_advantages(unroll, self.policy, cfg.gamma, cfg.gae_lambda)
            hooks.rollout_end(batch)
            terms = self.learner.update(batch, objective, learning_rate, hooks)
            return make_metrics(
                A2CMetrics,
                terms,
                self.added_losses,
                **self.collector.statistics.metrics(),
                explained_variance=batch.explained_variance(),
                learning_rate=learning_rate,
            )

    def _objective(self, rates: Mapping[str, float]) -> Objective:
        """Return what is minimised now."""
        if self.own_objective is not None:
            return self.own_objective
        return replace(self._gradient, ent_coef=rates["ent_coef"])

    def predict(
        self,
        obs: Any,
        deterministic: bool = True,
        *,
        state: Any = UNSET,
        episode_start: npt.ArrayLike | None = None,
        action_masks: npt.ArrayLike | None = None,
    ) -> Any:
        """Return an action for one observation, or actions for a batch; see ``ActorCritic``."""
        return self.agent.predict(
            obs,
            deterministic,
            state=state,
            episode_start=episode_start,
            action_masks=action_masks,
        )

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        return self.agent.policy_data(self.name)

    def state_dict(self) -> dict[str, Any]:
        """Return policy, optimiser and collector."""
        return self.agent.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore policy, optimiser and collector."""
        self.agent.load_state_dict(state)


def take_one_step(
    task: RolloutTask,
    batch: RolloutBatch,
    objective: Objective,
    learning_rate: float,
    hooks: Hooks,
) -> dict[str, float]:
    """Take one gradient step on the whole rollout.

    Args:
        task: policy and optimiser.
        batch: the rollout.
        objective: the loss above.
        learning_rate: RMSprop's.
        hooks: called after the step.

    Returns:
        The loss's terms.
    """
    loss, terms = objective.loss(task.policy, batch)
    loss = task.added_losses.add("policy", loss, task.policy, batch)
    task.optimizer.step(loss, learning_rate)
    means = mean_terms(type(terms), [terms])
    hooks.train_batch(lambda: means)
    return means
