"""Implicit Q-learning (Kostrikov et al. 2022): expectile regression of values.

It never evaluates an action outside the dataset.

Each gradient step takes a minibatch (s, a, r, s') and, in the order of the authors' code,

    A = min_i Q'_i(s, a) - V(s)
    step V on       mean |τ - 1(A < 0)| A²                                       eq. 5
    step π on       -mean min(exp(β A), w) log π(a|s)                            eq. 7
    step Q on       Σ_i mean (r + γ V(s') - Q_i(s, a))²                          eq. 6
    Q' ← Q' + τ' (Q - Q')

π and Q already see the new V. An optional deterministic policy instead takes its step on
mean min(exp(β A), w) Σ (π(s) - a)², summed over the action's components.

Deviations from the paper:
    1. rewards are the dataset's unless changed by ``reward_scale`` and ``reward_shift``, to which β
       is relative (the paper: MuJoCo by 1000 / (best - worst return), AntMaze r - 1);
    2. actions are learnt in [-1, 1], to which the dataset's bounds are mapped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from rlox.batches.transitions import TransitionBatch
from rlox.errors import ConfigError
from rlox.learners.transitions import Parts, ReplayObjective, StepResult
from rlox.networks import (
    DeterministicPolicy,
    GaussianPolicy,
    TwinQNetwork,
    ValueNetwork,
    polyak_update,
)
from torch import nn

from rlox_offline.base import ActorCriticMetrics, DatasetAlgorithm
from rlox_offline.configs import IQLConfig
from rlox_offline.losses import advantage_weights, critic_loss, expectile_loss

if TYPE_CHECKING:
    from rlox_offline.option_types import IQLArguments, Unpack


@dataclass(frozen=True)
class IQLMetrics(ActorCriticMetrics):
    """Metrics of one iteration."""

    value_loss: float
    """Expectile loss of V."""
    mean_weight: float
    """Mean of the weights exp(β A)."""


@dataclass(frozen=True)
class ImplicitQ(ReplayObjective):
    """IQL's value, policy and critics, one after the other."""

    learning_rate: float
    """Adam's step size for the value and the critics."""
    expectile: float = 0.7
    """τ of the value's loss (eq. 5)."""
    temperature: float = 3.0
    """Inverse temperature β of the policy's weights, per unit of return (eq. 7)."""
    max_weight: float = 100.0
    """Bound of those weights."""
    tau: float = 0.005
    """Share of the critics in each update of their targets."""
    stochastic: bool = True
    """Whether the policy's likelihood is maximised; else its squared errors are minimised."""

    def learn(self, parts: Parts, batch: TransitionBatch, actor_learning_rate: float) -> StepResult:
        """Take a gradient step of every network, the policy's at its own rate."""
        with torch.no_grad():
            target_q = parts.critic_target(batch.obs, batch.actions).amin(0)
        value_loss = expectile_loss(target_q - parts.value(batch.obs), self.expectile)
        value_loss = parts.minimize("value", value_loss, batch, self.learning_rate)

        with torch.no_grad():
            advantages = target_q - parts.value(batch.obs)
            targets = batch.rewards + batch.discounts * parts.value(batch.next_obs)
        weights = advantage_weights(advantages, self.temperature, self.max_weight)
        if self.stochastic:
            distances = -parts.policy.log_prob(batch.obs, batch.actions)
        else:
            distances = (parts.policy(batch.obs) - batch.actions).square().sum(-1)
        policy_loss = (weights * distances).mean()
        policy_loss = parts.minimize("policy", policy_loss, batch, actor_learning_rate)

        q = parts.critic(batch.obs, batch.actions)
        q_loss = parts.minimize("critic", critic_loss(q, targets), batch, self.learning_rate)
        polyak_update(parts.critic, parts.critic_target, self.tau)
        terms = {"value_loss": value_loss, "q_loss": q_loss, "policy_loss": policy_loss}
        return StepResult({**terms, "q_value": q.detach().mean(), "weight": weights.mean()})


@final
class IQL(DatasetAlgorithm):
    """Implicit Q-learning for continuous actions."""

    name = "iql"
    config_class = IQLConfig
    metrics_class = IQLMetrics
    objective_class = ImplicitQ
    arguments = ("dataset", "obs_dim", "act_dim")
    if TYPE_CHECKING:
        value: Any

        def __init__(self, *_: Any, env: Any = None, **options: Unpack[IQLArguments]) -> None: ...

    def make_networks(self, obs_dim: int, act_dim: int, **options: Any) -> dict[str, nn.Module]:
        """Return the policy, two critics and the value."""
        policy = GaussianPolicy if self.config.stochastic else DeterministicPolicy
        return {
            "policy": policy(obs_dim, act_dim, **options),
            "critic": TwinQNetwork(obs_dim, act_dim, **options),
            "value": ValueNetwork(obs_dim, **options),
        }

    def step_size(self, step: str) -> float:
        """Return the policy's step size, which follows a cosine to 0."""
        cfg = self.config
        if not cfg.actor_decay_steps and not self.clock.remaining:
            raise ConfigError(
                "actor_decay_steps=None lets the policy's step size fall to the end of a training, "
                "and none runs; set actor_decay_steps, or call algorithm.clock.extend(STEPS)"
            )
        total = cfg.actor_decay_steps or self.clock.target_gradient_steps
        done = min(self.clock.gradient_steps / total, 1.0)
        return float(cfg.learning_rate * 0.5 * (1 + math.cos(math.pi * done)))
