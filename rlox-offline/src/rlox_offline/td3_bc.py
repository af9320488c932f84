"""TD3+BC (Fujimoto and Gu 2021): TD3 with a behaviour-cloning term.

Each gradient step takes a minibatch (s, a, r, s') and

    a' = clip(π'(s') + clip(ε, -c, c), -1, 1)                        target policy smoothing
    y = r + γ min_i Q'_i(s', a')
    step on  Σ_i mean (Q_i(s, a) - y)²
    every d steps:
        step on  -λ mean Q_1(s, π(s)) + mean (π(s) - a)²,  λ = α / mean |Q_1(s, π(s))|      eq. 5
        Q' ← Q' + τ (Q - Q'),  π' ← π' + τ (π - π')

Deviations from the paper:
    1. actions are learnt in [-1, 1], to which the dataset's bounds are mapped; with bounds of ±1,
       as in all of the paper's tasks, that is the same;
    2. observations are normalised by the dataset, whose choice that is (eq. 6).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch
from rlox.batches.transitions import TransitionBatch
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.learners.terms import Scalar
from rlox.learners.transitions import (
    ChosenReplayLearner,
    Parts,
    ReplayTask,
    StepResult,
    choose_replay_learner,
)
from rlox.learners.value_objectives import TwinDelayed
from rlox.logging import LoggerCallback
from rlox.networks import DeterministicPolicy, TwinQNetwork, polyak_update
from rlox.nn import FlatOptimizer, frozen, standard_normal
from rlox.offline.base import OfflineAlgorithm
from rlox.offline.batch import OfflineBatch
from rlox.offline.dataset import OfflineDataset
from torch import Tensor

from rlox_offline.configs import TD3BCConfig
from rlox_offline.datasets import open_dataset
from rlox_offline.losses import critic_loss, td3_bc_actor_loss

if TYPE_CHECKING:
    from rlox_offline.option_types import TD3BCOptions, Unpack

__all__ = ["TD3BC", "TD3BCMetrics"]


@dataclass(frozen=True)
class TD3BCMetrics:
    """What one iteration reports."""

    critic_loss: float
    """Sum of both critics' mean squared errors."""
    actor_loss: float
    """NaN if the iteration had no step of the policy."""
    mean_q: float
    """Mean of both critics' values of the dataset's actions."""


@final
class TD3BC(OfflineAlgorithm):
    """TD3+BC for continuous actions.

    Args:
        dataset: what to learn from, or the name of a dataset
            (:func:`rlox_offline.datasets.load_dataset`).
        obs_dim: size of an observation; left out: the dataset's.
        act_dim: size of an action; left out: the dataset's.
        env: env to evaluate in, and for the actions' bounds if the dataset has none.
        config: a :class:`TD3BCConfig`, a mapping, or the path of a YAML or JSON file.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        config_kwargs: options of :class:`TD3BCConfig`, which win over ``config``.

    Raises:
        BackendError: the backend that the config names cannot take these steps.
        ConfigError: an option is unknown or out of range, or contradicts the dataset.
        DatasetError: the dataset cannot be learnt from.
    """

    name: ClassVar[str] = "td3_bc"
    config_class: ClassVar[type[Config]] = TD3BCConfig
    config: TD3BCConfig
    metrics_class: ClassVar[type[Any]] = TD3BCMetrics
    learner: ChosenReplayLearner

    def __init__(
        self,
        dataset: OfflineDataset | str | Path | None = None,
        obs_dim: int | Unset | None = UNSET,
        act_dim: int | Unset | None = UNSET,
        *,
        env: Any = None,
        config: TD3BCConfig | Mapping[str, Any] | str | Path | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        **config_kwargs: Unpack[TD3BCOptions],
    ) -> None:
        resolved = resolve_config(
            TD3BCConfig, config, obs_dim=obs_dim, act_dim=act_dim, **config_kwargs
        )
        super().__init__(
            open_dataset(dataset), config=resolved, env=env, callbacks=callbacks, logger=logger
        )
        cfg = self.config
        sizes: Any = (cfg.obs_dim, cfg.act_dim, cfg.hidden)
        generator = self.streams.torch("networks")
        self.policy = DeterministicPolicy(*sizes, generator=generator).to(self.device)
        self.critics = TwinQNetwork(*sizes, generator=generator).to(self.device)
        self.target_policy = copy.deepcopy(self.policy).requires_grad_(False)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.networks = {
            "policy": self.policy,
            "critics": self.critics,
            "target_policy": self.target_policy,
            "target_critics": self.target_critics,
        }
        adam = partial(torch.optim.Adam, fused=True)
        self.optimizers = {
            name: FlatOptimizer(self.networks[name], adam) for name in ("policy", "critics")
        }

        self.objective = TwinDelayed(
            target_noise=cfg.target_noise,
            noise_clip=cfg.noise_clip,
            tau=cfg.tau,
            cloning=cfg.alpha,
        )
        self.learner = choose_replay_learner(cfg.backend, self._task())

    def _task(self) -> ReplayTask:
        """Return the two steps as learner backends take them."""
        networks = {
            "policy": self.policy,
            "critic": self.critics,
            "policy_target": self.target_policy,
            "critic_target": self.target_critics,
        }
        optimizers = {"policy": self.optimizers["policy"], "critic": self.optimizers["critics"]}
        noise = {"target noise": self.streams.torch("noise")}
        parts = Parts(networks, optimizers, self.device, noise.__getitem__)
        return ReplayTask(self.objective, parts, self)

    def _update(self, batch: OfflineBatch) -> Mapping[str, Scalar]:
        """Take one step of the critics, and every ``policy_delay`` steps one of the policy."""
        cfg = self.config
        transitions = batch.transitions(cfg.gamma, cfg.reward_scale, cfg.reward_shift)
        values = self.learner.step("learn_values", transitions, cfg.learning_rate).terms
        metrics = {"critic_loss": values["q_loss"], "mean_q": values["q_value"]}
        if (self.clock.gradient_steps + 1) % cfg.policy_delay:
            return metrics
        policy = self.learner.step("learn_policy", transitions, cfg.learning_rate).terms
        return {**metrics, "actor_loss": policy["policy_loss"]}

    def learn_values(
        self, parts: Parts, batch: TransitionBatch, learning_rate: float
    ) -> StepResult:
        """Take a gradient step of the critics."""
        q_values = self.critics(batch.obs, batch.actions)
        loss = critic_loss(q_values, self._target(batch))
        self.optimizers["critics"].step(loss, learning_rate)
        return StepResult({"q_loss": loss.detach(), "q_value": q_values.detach().mean()})

    def learn_policy(
        self, parts: Parts, batch: TransitionBatch, learning_rate: float
    ) -> StepResult:
        """Take a gradient step of the policy, and move the target networks."""
        objective = self.objective
        assert objective.cloning is not None
        with frozen(self.critics):
            actions = self.policy(batch.obs)
            q_of_policy = self.critics(batch.obs, actions)[0]
            loss = td3_bc_actor_loss(q_of_policy, actions, batch.actions, objective.cloning)
            self.optimizers["policy"].step(loss, learning_rate)
        polyak_update(self.policy, self.target_policy, objective.tau)
        polyak_update(self.critics, self.target_critics, objective.tau)
        return StepResult({"policy_loss": loss.detach()})

    @torch.no_grad()
    def _target(self, batch: TransitionBatch) -> Tensor:
        objective = self.objective
        noise = standard_normal(batch.actions, self.streams.torch("noise")) * objective.target_noise
        noise = noise.clamp(-objective.noise_clip, objective.noise_clip)
        next_actions = (self.target_policy(batch.next_obs) + noise).clamp(-1, 1)
        next_values: Tensor = self.target_critics(batch.next_obs, next_actions).amin(0)
        return batch.rewards + batch.discounts * next_values
