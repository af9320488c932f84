"""Soft actor-critic (Haarnoja et al. 2018b, algorithm 1; arXiv 1812.05905).

Each gradient step takes a batch from the replay buffer and, with a' ~ π(.|s') and a ~ π(.|s),

    y    = r + γ (min over k of Q'_k(s', a') - α log π(a'|s'))            eq. 2, 3
    J_Q  = Σ over k of mean ½ (Q_k(s, a_data) - y)²                        eq. 5
    J_π  = mean α log π(a|s) - min over k of Q_k(s, a)                     eq. 7, 9
    J_α  = -mean log α (log π(a|s) + H̄)                                    eq. 18

and moves the target critics Q' towards Q. γ is 0 where the task ended.

Deviations from the paper:
    1. log α is learnt, and replaces α in J_α (the authors' softlearning);
    2. before ``learning_starts`` actions are uniform (the authors' softlearning);
    3. optional: exploration noise on top of the policy's own, prioritized replay, n-step
       targets;
    4. values are bootstrapped from the true final observation where an episode is truncated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch
from rlox.batches.transitions import TransitionBatch
from rlox.learners.transitions import Parts, ReplayObjective, StepResult, frozen
from rlox.networks import polyak_update
from rlox.networks.policies import make_critics, make_squashed_gaussian
from rlox.replay.algorithm import Network, ReplayAlgorithm, ReplayMetrics
from torch import Tensor

from rlox_offpolicy.configs import SACConfig
from rlox_offpolicy.networks import Temperature, critics, draw, kept_entropy, stochastic_policy
from rlox_offpolicy.targets import soft_values, td_targets

if TYPE_CHECKING:
    from rlox_offpolicy.option_types import SACArguments, Unpack


@dataclass(frozen=True, kw_only=True)
class SACMetrics(ReplayMetrics):
    """Metrics of SAC, discrete SAC and CrossQ."""

    policy_loss: float
    entropy: float
    """Mean of -log π(a|s) in nats; continuous actions are taken in [-1, 1]."""
    alpha: float
    """Temperature."""


@dataclass(frozen=True)
class SoftActorCritic(ReplayObjective):
    """SAC's critics, policy and temperature, one after the other.

    The policy's ``generator`` draws the noise, for the targets first.
    """

    target_entropy: float | None
    """Target entropy H̄ of the temperature in nats, for actions in [-1, 1]; ``None`` fixes the
    temperature (sec. 5)."""
    tau: float = 0.005
    """Share of the critics in each update of their targets (table 1)."""

    def learn(self, parts: Parts, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take a gradient step of critics, policy and temperature, and move the targets."""
        alpha = parts.alpha.value()
        with torch.no_grad():
            next_actions, next_log_probs = draw(parts.policy, batch.next_obs)
            next_q = parts.critic_target(batch.next_obs, next_actions)
            next_values = soft_values(next_q, next_log_probs, alpha)
            targets = td_targets(batch.rewards, batch.discounts, next_values)
        q = parts.critic(batch.obs, batch.actions)
        errors = q - targets
        q_loss = 0.5 * (batch.weights * errors.square()).mean(-1).sum()
        q_loss = parts.minimize("critic", q_loss, batch, learning_rate)

        actions, log_probs = draw(parts.policy, batch.obs)
        with frozen(parts.critic):
            values = parts.critic(batch.obs, actions).amin(0)
        policy_loss = (alpha * log_probs - values).mean()
        policy_loss = parts.minimize("policy", policy_loss, batch, learning_rate)

        entropy = -log_probs.detach().mean()
        if self.target_entropy is not None:
            alpha_loss = parts.alpha.log_alpha * (entropy - self.target_entropy)
            parts.minimize("alpha", alpha_loss, batch, learning_rate)

        polyak_update(parts.critic, parts.critic_target, self.tau)
        terms = {"q_loss": q_loss, "q_value": q.detach().mean(), "policy_loss": policy_loss}
        return StepResult({**terms, "entropy": entropy, "alpha": alpha}, errors.detach())

    def act(self, parts: Parts, obs: Any) -> Tensor:
        """Return samples (N, act_dim) from the policy."""
        return draw(parts.policy, obs)[0]


@final
class SAC(ReplayAlgorithm):
    """Soft actor-critic for continuous actions.

    Args:
        policy: a ``torch.nn.Module`` with the methods of :class:`rlox.protocols.StochasticActor`.
        critic: a ``torch.nn.Module`` from observations (B, *shape) and actions (B, act_dim) to
            values (K, B) of K critics. ``None`` makes two MLPs.
        exploration: noise on top of the policy's own, see :mod:`rlox.replay.exploration`.
    """

    name = "sac"
    config_class = SACConfig
    metrics_class = SACMetrics
    arguments = (
        "env_id", "n_envs", "seed", "policy", "critic", "buffer", "exploration", "logger",
        "callbacks",
    )  # fmt: skip
    if TYPE_CHECKING:

        def __init__(self, env_id: Any, *given: Any, **options: Unpack[SACArguments]) -> None: ...

    def make_networks(self, space: Any, size: int, **sizes: Any) -> dict[str, Network]:
        """Return policy, two critics and temperature."""
        cfg = self.config
        return {
            "policy": stochastic_policy(make_squashed_gaussian, space, size, **sizes),
            "critic": critics(make_critics, space, size, n_critics=2, **sizes),
            "alpha": Network(partial(Temperature, cfg.alpha, cfg.auto_entropy)),
        }

    def make_objective(self, size: int) -> SoftActorCritic:
        """Return the objective; the default target entropy is minus the action size."""
        return SoftActorCritic(kept_entropy(self.config, -size), self.config.tau)
