"""Implicit Q-learning (Kostrikov et al. 2022): expectile regression of values.

It never asks for the value of an action that is not in the dataset.

Each gradient step takes a minibatch (s, a, r, s') and, in this order, as the authors' code does,

    A = min_i Q'_i(s, a) - V(s)
    step V on       mean |τ - 1(A < 0)| A²                                       eq. 5
    step π on       -mean min(exp(β A), w) log π(a|s)                            eq. 7
    step Q on       Σ_i mean (r + γ V(s') - Q_i(s, a))²                          eq. 6
    Q' ← Q' + τ' (Q - Q')

π and Q already see the new V. A deterministic policy, which is an option, takes its step on
mean min(exp(β A), w) Σ (π(s) - a)² over the action's components instead.

Deviations from the paper:
    1. rewards are as the dataset has them unless ``reward_scale`` and ``reward_shift``, which β is
       relative to, say otherwise (MuJoCo: by 1000 / (best - worst return); AntMaze: r - 1);
    2. actions are learnt in [-1, 1], to which the dataset's bounds are mapped.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch
from rlox.batches.transitions import TransitionBatch
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.errors import ConfigError
from rlox.learners.terms import Scalar
from rlox.learners.transitions import (
    ChosenReplayLearner,
    Parts,
    ReplayTask,
    StepResult,
    choose_replay_learner,
)
from rlox.learners.value_objectives import ImplicitQ
from rlox.logging import LoggerCallback
from rlox.networks import (
    DeterministicPolicy,
    GaussianPolicy,
    TwinQNetwork,
    ValueNetwork,
    polyak_update,
)
from rlox.nn import FlatOptimizer
from rlox.offline.base import OfflineAlgorithm
from rlox.offline.batch import OfflineBatch
from rlox.offline.dataset import OfflineDataset

from rlox_offline.configs import IQLConfig
from rlox_offline.datasets import open_dataset
from rlox_offline.losses import advantage_weights, critic_loss, expectile_loss

if TYPE_CHECKING:
    from rlox_offline.option_types import IQLOptions, Unpack

__all__ = ["IQL", "IQLMetrics"]


@dataclass(frozen=True)
class IQLMetrics:
    """What one iteration reports."""

    value_loss: float
    """Expectile loss of V."""
    critic_loss: float
    """Sum of both critics' mean squared errors."""
    actor_loss: float
    """Weighted negative log-likelihood, or squared error, of the dataset's actions."""
    mean_q: float
    """Mean of both critics' values of the dataset's actions."""
    mean_weight: float
    """Mean of the weights exp(β A)."""


@final
class IQL(OfflineAlgorithm):
    """Implicit Q-learning for continuous actions.

    Args:
        dataset: what to learn from, or the name of a dataset
            (:func:`rlox_offline.datasets.load_dataset`).
        obs_dim: size of an observation; left out: the dataset's.
        act_dim: size of an action; left out: the dataset's.
        env: env to evaluate in, and for the actions' bounds if the dataset has none.
        config: an :class:`IQLConfig`, a mapping, or the path of a YAML or JSON file.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        config_kwargs: options of :class:`IQLConfig`, which win over ``config``.

    Raises:
        BackendError: the backend that the config names cannot take these steps.
        ConfigError: an option is unknown or out of range, or contradicts the dataset.
        DatasetError: the dataset cannot be learnt from.
    """

    name: ClassVar[str] = "iql"
    config_class: ClassVar[type[Config]] = IQLConfig
    config: IQLConfig
    metrics_class: ClassVar[type[Any]] = IQLMetrics
    learner: ChosenReplayLearner

    def __init__(
        self,
        dataset: OfflineDataset | str | Path | None = None,
        obs_dim: int | Unset | None = UNSET,
        act_dim: int | Unset | None = UNSET,
        *,
        env: Any = None,
        config: IQLConfig | Mapping[str, Any] | str | Path | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        **config_kwargs: Unpack[IQLOptions],
    ) -> None:
        resolved = resolve_config(
            IQLConfig, config, obs_dim=obs_dim, act_dim=act_dim, **config_kwargs
        )
        super().__init__(
            open_dataset(dataset), config=resolved, env=env, callbacks=callbacks, logger=logger
        )
        cfg = self.config
        sizes: Any = (cfg.obs_dim, cfg.act_dim, cfg.hidden)
        generator = self.streams.torch("networks")
        policy_class: Any = GaussianPolicy if cfg.stochastic else DeterministicPolicy
        self.policy = policy_class(*sizes, generator=generator).to(self.device)
        self.critics = TwinQNetwork(*sizes, generator=generator).to(self.device)
        self.value = ValueNetwork(sizes[0], cfg.hidden, generator=generator).to(self.device)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.networks = {
            "policy": self.policy,
            "critics": self.critics,
            "value": self.value,
            "target_critics": self.target_critics,
        }
        adam = partial(torch.optim.Adam, fused=True)
        self.optimizers = {
            name: FlatOptimizer(self.networks[name], adam)
            for name in ("policy", "critics", "value")
        }

        self.objective = ImplicitQ(
            learning_rate=cfg.learning_rate,
            expectile=cfg.expectile,
            temperature=cfg.temperature,
            max_weight=cfg.max_weight,
            tau=cfg.tau,
            stochastic=cfg.stochastic,
        )
        networks = {
            "value": self.value,
            "policy": self.policy,
            "critic": self.critics,
            "critic_target": self.target_critics,
        }
        optimizers = {
            "value": self.optimizers["value"],
            "policy": self.optimizers["policy"],
            "critic": self.optimizers["critics"],
        }
        parts = Parts(networks, optimizers, self.device, self.streams.torch)
        self.learner = choose_replay_learner(cfg.backend, ReplayTask(self.objective, parts, self))

    def _update(self, batch: OfflineBatch) -> Mapping[str, Scalar]:
        """Take one step of the value, the policy and the critics."""
        cfg = self.config
        transitions = batch.transitions(cfg.gamma, cfg.reward_scale, cfg.reward_shift)
        rate = self._actor_learning_rate()
        terms = self.learner.step("learn", transitions, rate).terms
        return {
            "value_loss": terms["value_loss"],
            "critic_loss": terms["q_loss"],
            "actor_loss": terms["policy_loss"],
            "mean_q": terms["q_value"],
            "mean_weight": terms["weight"],
        }

    def learn(self, parts: Parts, batch: TransitionBatch, actor_learning_rate: float) -> StepResult:
        """Take a gradient step of every network, that of the policy at a rate of its own."""
        objective = self.objective
        with torch.no_grad():
            target_q = self.target_critics(batch.obs, batch.actions).amin(0)
        value_loss = expectile_loss(target_q - self.value(batch.obs), objective.expectile)
        self.optimizers["value"].step(value_loss, objective.learning_rate)

        with torch.no_grad():
            advantages = target_q - self.value(batch.obs)
            targets = batch.rewards + batch.discounts * self.value(batch.next_obs)
        weights = advantage_weights(advantages, objective.temperature, objective.max_weight)
        if objective.stochastic:
            distances = -self.policy.log_prob(batch.obs, batch.actions)
        else:
            distances = (self.policy(batch.obs) - batch.actions).square().sum(-1)
        actor_loss = (weights * distances).mean()
        self.optimizers["policy"].step(actor_loss, actor_learning_rate)

        q_values = self.critics(batch.obs, batch.actions)
        loss = critic_loss(q_values, targets)
        self.optimizers["critics"].step(loss, objective.learning_rate)
        polyak_update(self.critics, self.target_critics, objective.tau)
        return StepResult(
            {
                "value_loss": value_loss.detach(),
                "q_loss": loss.detach(),
                "policy_loss": actor_loss.detach(),
                "q_value": q_values.detach().mean(),
                "weight": weights.mean(),
            }
        )

    def _actor_learning_rate(self) -> float:
        cfg = self.config
        if not cfg.actor_decay_steps and not self.clock.remaining:
            raise ConfigError(
                "actor_decay_steps=None lets the policy's step size fall to the end of a training, "
                "and none runs; set actor_decay_steps, or call algorithm.clock.extend(STEPS)"
            )
        total = cfg.actor_decay_steps or self.clock.target_gradient_steps
        done = min(self.clock.gradient_steps / total, 1.0)
        return cfg.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
