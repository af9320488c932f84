"""Conservative Q-learning, CQL(H) (Kumar et al. 2020): SAC with pessimistic critics.

Their values are pushed down on actions of the policy and at random, and up on the dataset's.
Each gradient step takes a minibatch (s, a, r, s') and

    ã ~ π(s);  step log α on  -log α · mean (log π(ã|s) + H)             entropy temperature
    step π on   mean α log π(ã|s) - min_i Q_i(s, ã)      (at first:  - log π(a|s) instead of - Q)
    y = r + γ min_i Q'_i(s', a'),  a' ~ π(s') or its mode                 no entropy in the backup
    P_i = mean log Σ_a exp Q_i(s, a) - Q_i(s, a_data)                     eq. 4, by sampling
    step Q on   Σ_i mean (Q_i(s, a) - y)² + α_c Σ_i (P_i - T)
    Q' ← Q' + τ (Q - Q')

With ``calibrated`` it is Cal-QL (Nakamoto et al. 2023): where a is the policy's, P has
max(Q_i(s, a), G(s)) for Q_i(s, a) (eq. 5.1), G being the discounted return that the dataset reached
from s on, so that pessimism ends where the behaviour policy is known to do better.

α_c is ``cql_alpha`` and T = 0, or, with ``auto_alpha``, α_c is ``cql_alpha`` times a Lagrange
multiplier ≥ 0 that rises where the penalty exceeds T = ``cql_target_value`` (eq. 30).

Deviations from the paper and the authors' code:
    1. two hidden layers in all networks; the code has three in the critics;
    2. the policy does not clone at first unless ``bc_steps`` says so; the code's 40 000 steps are
       for trainings of millions;
    3. actions are learnt in [-1, 1], to which the dataset's bounds are mapped;
    4. G of an episode that was cut takes its last reward to go on for ever, as Cal-QL's code does
       in tasks without an end, and in others if an episode has no success; of one that has, it
       sums what was recorded;
    5. Cal-QL's code takes the highest of ten next actions' values into the targets.
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
from rlox.learners.value_objectives import ConservativeQ
from rlox.logging import LoggerCallback
from rlox.networks import SquashedGaussianPolicy, TwinQNetwork, polyak_update
from rlox.nn import FlatOptimizer, frozen, uniform
from rlox.offline.base import OfflineAlgorithm
from rlox.offline.batch import OfflineBatch
from rlox.offline.dataset import OfflineDataset
from torch import Tensor

from rlox_offline.configs import CQLConfig
from rlox_offline.datasets import open_dataset
from rlox_offline.datasets.returns import with_returns
from rlox_offline.losses import cql_penalty, critic_loss
from rlox_offline.networks import LogScale

if TYPE_CHECKING:
    from rlox_offline.option_types import CQLOptions, Unpack

__all__ = ["CQL", "CQLMetrics"]


@dataclass(frozen=True)
class CQLMetrics:
    """What one iteration reports."""

    critic_loss: float
    """Sum of both critics' mean squared errors, without the penalty."""
    cql_loss: float
    """The weighted penalty, summed over both critics."""
    actor_loss: float
    """In nats and units of the return."""
    alpha: float
    """Weight α of the entropy."""
    cql_alpha: float
    """Weight α_c of the penalty."""
    entropy: float
    """Estimate -mean log π(ã|s) in nats."""
    mean_q: float
    """Mean of both critics' values of the dataset's actions."""


@final
class CQL(OfflineAlgorithm):
    """Conservative Q-learning for continuous actions.

    Args:
        dataset: what to learn from, or the name of a dataset
            (:func:`rlox_offline.datasets.load_dataset`).
        obs_dim: size of an observation; left out: the dataset's.
        act_dim: size of an action; left out: the dataset's.
        env: env to evaluate in, and for the actions' bounds if the dataset has none.
        config: a :class:`CQLConfig`, a mapping, or the path of a YAML or JSON file.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        config_kwargs: options of :class:`CQLConfig`, which win over ``config``.

    Raises:
        BackendError: the backend that the config names cannot take these steps.
        ConfigError: an option is unknown or out of range, or contradicts the dataset.
        DatasetError: the dataset cannot be learnt from, or with ``calibrated`` has no returns.
    """

    name: ClassVar[str] = "cql"
    config_class: ClassVar[type[Config]] = CQLConfig
    config: CQLConfig
    metrics_class: ClassVar[type[Any]] = CQLMetrics
    learner: ChosenReplayLearner

    def __init__(
        self,
        dataset: OfflineDataset | str | Path | None = None,
        obs_dim: int | Unset | None = UNSET,
        act_dim: int | Unset | None = UNSET,
        *,
        env: Any = None,
        config: CQLConfig | Mapping[str, Any] | str | Path | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        **config_kwargs: Unpack[CQLOptions],
    ) -> None:
        resolved = resolve_config(
            CQLConfig, config, obs_dim=obs_dim, act_dim=act_dim, **config_kwargs
        )
        super().__init__(
            open_dataset(dataset), config=resolved, env=env, callbacks=callbacks, logger=logger
        )
        cfg = self.config
        if cfg.calibrated and self.dataset is not None:
            rewards = (cfg.gamma, cfg.reward_scale, cfg.reward_shift)
            self.minibatches = with_returns(self.dataset, *rewards)
        sizes: Any = (cfg.obs_dim, cfg.act_dim, cfg.hidden)
        generator = self.streams.torch("networks")
        self.policy = SquashedGaussianPolicy(*sizes, generator=generator).to(self.device)
        self.policy.generator = self.streams.torch("policy")
        self.critics = TwinQNetwork(*sizes, generator=generator).to(self.device)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.networks = {
            "policy": self.policy,
            "critics": self.critics,
            "alpha": LogScale().to(self.device),
            "multiplier": LogScale().to(self.device),
            "target_critics": self.target_critics,
        }
        adam = partial(torch.optim.Adam, fused=True)
        self.optimizers = {
            name: FlatOptimizer(self.networks[name], adam)
            for name in ("policy", "critics", "alpha", "multiplier")
        }
        entropy = -float(sizes[1]) if cfg.target_entropy is None else cfg.target_entropy
        self.objective = ConservativeQ(
            target_entropy=entropy if cfg.auto_entropy else None,
            penalty_weight=cfg.cql_alpha,
            penalty_target=cfg.cql_target_value if cfg.auto_alpha else None,
            n_random_actions=cfg.n_random_actions,
            mode_targets=cfg.mode_targets, tau=cfg.tau,
        )  # fmt: skip
        self.learner = choose_replay_learner(cfg.backend, self._task())

    def _task(self) -> ReplayTask:
        """Return the steps as learner backends take them."""
        networks = {
            "policy": self.policy,
            "critic": self.critics,
            "critic_target": self.target_critics,
            "alpha": self.networks["alpha"],
            "multiplier": self.networks["multiplier"],
        }
        optimizers = {
            "policy": self.optimizers["policy"],
            "critic": self.optimizers["critics"],
            "alpha": self.optimizers["alpha"],
            "multiplier": self.optimizers["multiplier"],
        }
        parts = Parts(networks, optimizers, self.device, self.streams.torch)
        return ReplayTask(self.objective, parts, self)

    def _update(self, batch: OfflineBatch) -> Mapping[str, Scalar]:
        """Take one step of the temperature, the policy, the multiplier and the critics."""
        cfg = self.config
        transitions = batch.transitions(cfg.gamma, cfg.reward_scale, cfg.reward_shift)
        step = "clone" if self.clock.gradient_steps < cfg.bc_steps else "learn_policy"
        policy = self.learner.step(step, transitions, cfg.actor_learning_rate).terms
        values = self.learner.step("learn_values", transitions, cfg.learning_rate).terms
        return {
            "critic_loss": values["q_loss"],
            "cql_loss": values["cql_loss"],
            "actor_loss": policy["policy_loss"],
            "alpha": policy["alpha"],
            "cql_alpha": values["cql_alpha"],
            "entropy": policy["entropy"],
            "mean_q": values["q_value"],
        }

    def clone(self, parts: Parts, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take a gradient step of the policy up the likelihood of the dataset's actions."""
        _, log_probs = self.policy.get_action_and_logprob(batch.obs)
        attraction = self.policy.log_prob(batch.obs, batch.actions)
        return self._step_policy(log_probs, attraction, learning_rate)

    def learn_policy(
        self, parts: Parts, batch: TransitionBatch, learning_rate: float
    ) -> StepResult:
        """Take a gradient step of the policy up the values of its actions."""
        actions, log_probs = self.policy.get_action_and_logprob(batch.obs)
        with frozen(self.critics):
            attraction = self.critics(batch.obs, actions).amin(0)
            return self._step_policy(log_probs, attraction, learning_rate)

    def _step_policy(
        self, log_probs: Tensor, attraction: Tensor, learning_rate: float
    ) -> StepResult:
        entropy = -log_probs.detach().mean()
        target_entropy = self.objective.target_entropy
        if target_entropy is not None:
            log_alpha: Any = self.networks["alpha"].log_value
            self.optimizers["alpha"].step(log_alpha * (entropy - target_entropy), learning_rate)
        alpha = self.networks["alpha"]().detach()
        loss = (alpha * log_probs - attraction).mean()
        self.optimizers["policy"].step(loss, learning_rate)
        return StepResult({"policy_loss": loss.detach(), "entropy": entropy, "alpha": alpha})

    def learn_values(
        self, parts: Parts, batch: TransitionBatch, learning_rate: float
    ) -> StepResult:
        """Take a gradient step of the multiplier and the critics, and move the targets."""
        objective = self.objective
        q_values = self.critics(batch.obs, batch.actions)
        bellman_loss = critic_loss(q_values, self._target(batch))
        penalty = self._penalty(batch, q_values)
        if objective.penalty_target is not None:
            penalty = penalty - objective.penalty_target
            multiplier = self.networks["multiplier"]()
            self.optimizers["multiplier"].step(
                -(multiplier * objective.penalty_weight * penalty.detach()).mean(), learning_rate
            )
        weight = objective.penalty_weight * self.networks["multiplier"]().detach().clamp(max=1e6)
        cql_loss = weight * penalty.sum()
        self.optimizers["critics"].step(bellman_loss + cql_loss, learning_rate)
        polyak_update(self.critics, self.target_critics, objective.tau)
        return StepResult(
            {
                "q_loss": bellman_loss.detach(),
                "q_value": q_values.detach().mean(),
                "cql_loss": cql_loss.detach(),
                "cql_alpha": weight,
            }
        )

    @torch.no_grad()
    def _target(self, batch: TransitionBatch) -> Tensor:
        if self.objective.mode_targets:
            next_actions = self.policy.deterministic(batch.next_obs)
        else:
            next_actions, _ = self.policy.get_action_and_logprob(batch.next_obs)
        next_values = self.target_critics(batch.next_obs, next_actions).amin(0)
        targets: Tensor = batch.rewards + batch.discounts * next_values
        return targets

    def _penalty(self, batch: TransitionBatch, data_q: Tensor) -> Tensor:
        """Return the unweighted penalty of each critic, (K,)."""
        n, (size, act_dim) = self.objective.n_random_actions, batch.actions.shape
        with torch.no_grad():
            here, here_log_probs = self.policy.get_action_and_logprob(batch.obs, n)
            there, there_log_probs = self.policy.get_action_and_logprob(batch.next_obs, n)
            log_probs = torch.cat((here_log_probs, there_log_probs))
            random = uniform(here, self.streams.torch("random actions"))
            actions = torch.cat((random, here, there))
        obs = batch.obs.expand(3 * n, -1, -1).reshape(3 * n * size, -1)
        q_values = self.critics(obs, actions.view(3 * n * size, act_dim)).view(-1, 3 * n, size)
        values = q_values[:, :n], q_values[:, n:]
        return cql_penalty(*values, log_probs, data_q, act_dim, batch.returns_to_go)
