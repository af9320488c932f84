"""AWAC (Nair et al. 2020): imitation weighted by advantages.

Each gradient step takes a minibatch (s, a, r, s') and

    step on  Σ_i mean (r + γ min_i Q'_i(s', a') - Q_i(s, a))²,   a' ~ π(s')     eq. 4
    A = min_i Q_i(s, a) - min_i Q_i(s, ã),   ã ~ π(s)
    step on  -mean min(exp(A / λ), w) log π(a|s)                              eq. 13
    Q' ← Q' + τ (Q - Q')

The policy already sees the new Q.

Deviations from the paper:
    1. the weights are bounded by w, as in IQL; the authors' code divides them by their sum over
       the minibatch;
    2. two hidden layers in all networks; the authors' code has four in the policy;
    3. actions are learnt in [-1, 1], to which the dataset's bounds are mapped; sampled actions are
       clipped to [-1, 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from rlox.batches.transitions import TransitionBatch
from rlox.learners.transitions import Parts, ReplayObjective, StepResult
from rlox.networks import GaussianPolicy, TwinQNetwork, polyak_update
from torch import Tensor, nn

from rlox_offline.base import ActorCriticMetrics, DatasetAlgorithm
from rlox_offline.configs import AWACConfig
from rlox_offline.losses import advantage_weights, critic_loss

if TYPE_CHECKING:
    from rlox_offline.option_types import AWACArguments, Unpack


@dataclass(frozen=True)
class AWACMetrics(ActorCriticMetrics):
    """Metrics of one iteration."""

    mean_weight: float
    """Mean weight of the log-likelihoods."""


@dataclass(frozen=True)
class AdvantageWeighted(ReplayObjective):
    """AWAC's critics and policy, one after the other."""

    awac_lambda: float = 1.0
    """Lagrange multiplier λ, the divisor of advantages."""
    max_weight: float = 100.0
    """Bound w of the weights exp(A / λ)."""
    tau: float = 0.005
    """Share of the critics in each update of their targets."""

    def learn(self, parts: Parts, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take a gradient step of the critics, then one of the policy."""
        with torch.no_grad():
            next_values = self._value(parts.policy, parts.critic_target, batch.next_obs)
            targets = batch.rewards + batch.discounts * next_values
        q = parts.critic(batch.obs, batch.actions)
        q_loss = parts.minimize("critic", critic_loss(q, targets), batch, learning_rate)

        with torch.no_grad():
            q_of_data = parts.critic(batch.obs, batch.actions).amin(0)
            advantages = q_of_data - self._value(parts.policy, parts.critic, batch.obs)
        weights = advantage_weights(advantages, 1 / self.awac_lambda, self.max_weight)
        policy_loss = -(weights * parts.policy.log_prob(batch.obs, batch.actions)).mean()
        policy_loss = parts.minimize("policy", policy_loss, batch, learning_rate)
        polyak_update(parts.critic, parts.critic_target, self.tau)
        terms = {"q_loss": q_loss, "policy_loss": policy_loss, "q_value": q.detach().mean()}
        return StepResult({**terms, "weight": weights.mean()})

    def _value(self, policy: Any, critic: Any, obs: Tensor) -> Tensor:
        """Return the smaller of two critics' values (B,) for an action of the policy."""
        actions, _ = policy.get_action_and_logprob(obs)
        return critic(obs, actions.clamp(-1, 1)).amin(0)  # type: ignore[no-any-return]


@final
class AWAC(DatasetAlgorithm):
    """Advantage-weighted actor-critic for continuous actions."""

    name = "awac"
    config_class = AWACConfig
    metrics_class = AWACMetrics
    objective_class = AdvantageWeighted
    arguments = ("dataset", "obs_dim", "act_dim")
    if TYPE_CHECKING:

        def __init__(self, *_: Any, env: Any = None, **options: Unpack[AWACArguments]) -> None: ...

    def make_networks(self, obs_dim: int, act_dim: int, **options: Any) -> dict[str, nn.Module]:
        """Return the policy and two critics."""
        return {
            "policy": GaussianPolicy(obs_dim, act_dim, **options),
            "critic": TwinQNetwork(obs_dim, act_dim, **options),
        }
