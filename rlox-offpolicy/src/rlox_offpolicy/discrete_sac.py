"""Soft actor-critic for discrete actions (Christodoulou 2019, algorithm 1; arXiv 1910.07207).

Sums over all actions replace the single sampled action of :mod:`rlox_offpolicy.sac`. Each gradient
step takes a batch from the replay buffer and, with π(s) and Q(s) as vectors,

    V(s') = π(s')ᵀ (min over k of Q'_k(s') - α log π(s'))                  eq. 10
    y     = r + γ V(s')
    J_Q   = Σ over k of mean ½ (Q_k(s, a_data) - y)²                       eq. 4
    J_π   = mean π(s)ᵀ (α log π(s) - min over k of Q_k(s))                 eq. 12
    J_α   = -mean log α (π(s)ᵀ log π(s) + H̄)                               eq. 11

and moves the target critics Q' towards Q. γ is 0 where the task ended.

Deviations from the paper:
    1. log α is learnt, and replaces α in J_α, as in :mod:`rlox_offpolicy.sac`;
    2. the target critics move by τ each gradient step; the paper copies them every 8000 steps;
    3. before ``learning_starts`` actions are uniform (the author's code);
    4. optional: prioritized replay, n-step targets;
    5. values are bootstrapped from the true final observation where an episode is truncated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch
from gymnasium import spaces
from rlox.batches.transitions import TransitionBatch
from rlox.learners.transitions import Parts, ReplayObjective, StepResult
from rlox.networks import polyak_update
from rlox.networks.policies import make_discrete_critics, make_logits
from rlox.networks.validate import B
from rlox.nn.distributions import Categorical
from rlox.replay.algorithm import Network, Outputs, ReplayAlgorithm
from torch import Tensor

from rlox_offpolicy.configs import DiscreteSACConfig
from rlox_offpolicy.networks import Temperature, kept_entropy
from rlox_offpolicy.sac import SACMetrics
from rlox_offpolicy.targets import expected_soft_values, td_targets

if TYPE_CHECKING:
    from rlox_offpolicy.option_types import DiscreteSACArguments, Unpack


@dataclass(frozen=True)
class DiscreteSoftActorCritic(ReplayObjective):
    """Critics, policy and temperature, one after the other."""

    target_entropy: float | None
    """Target entropy H̄ of the temperature, in nats; ``None`` fixes the temperature."""
    tau: float = 0.005
    """Share of the critics in each update of their targets."""

    def learn(self, parts: Parts, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take a gradient step of critics, policy and temperature, and move the targets."""
        alpha = parts.alpha.value()
        with torch.no_grad():
            next_log_probs = parts.policy(batch.next_obs).log_softmax(-1)
            next_q = parts.critic_target(batch.next_obs)
            next_values = expected_soft_values(next_q, next_log_probs, alpha)
            targets = td_targets(batch.rewards, batch.discounts, next_values)
        all_q = parts.critic(batch.obs)
        q = all_q.gather(-1, batch.actions.expand(len(all_q), -1, -1)).squeeze(-1)
        errors = q - targets
        q_loss = 0.5 * (batch.weights * errors.square()).mean(-1).sum()
        q_loss = parts.minimize("critic", q_loss, batch, learning_rate)

        log_probs = parts.policy(batch.obs).log_softmax(-1)
        probs = log_probs.exp()
        with torch.no_grad():
            values = parts.critic(batch.obs).amin(0)
        policy_loss = (probs * (alpha * log_probs - values)).sum(-1).mean()
        policy_loss = parts.minimize("policy", policy_loss, batch, learning_rate)

        entropy = -(probs * log_probs).detach().sum(-1).mean()
        if self.target_entropy is not None:
            alpha_loss = parts.alpha.log_alpha * (entropy - self.target_entropy)
            parts.minimize("alpha", alpha_loss, batch, learning_rate)

        polyak_update(parts.critic, parts.critic_target, self.tau)
        terms = {"q_loss": q_loss, "q_value": q.detach().mean(), "policy_loss": policy_loss}
        return StepResult({**terms, "entropy": entropy, "alpha": alpha}, errors.detach())

    def act(self, parts: Parts, obs: Any) -> Tensor:
        """Return samples (N,) from the policy."""
        return Categorical(parts.policy(obs)).sample(parts.stream("actions"))[0]

    def mode(self, parts: Parts, obs: Any) -> Tensor:
        """Return the most probable actions (N,)."""
        return parts.policy(obs).argmax(-1)  # type: ignore[no-any-return]


@final
class DiscreteSAC(ReplayAlgorithm):
    """Soft actor-critic for discrete actions.

    Args:
        policy: a ``torch.nn.Module`` from observations (B, *shape) to logits (B, A).
        critic: a ``torch.nn.Module`` from observations (B, *shape) to action values (K, B, A) of K
            critics. ``None`` makes two that fit.
    """

    name = "discrete_sac"
    config_class = DiscreteSACConfig
    metrics_class = SACMetrics
    acts_in = spaces.Discrete
    arguments = (
        "env_id", "n_envs", "seed", "policy", "critic", "buffer", "logger", "callbacks",
    )  # fmt: skip
    if TYPE_CHECKING:

        def __init__(
            self, env_id: Any, *given: Any, **options: Unpack[DiscreteSACArguments]
        ) -> None: ...

    def make_networks(self, space: Any, size: int, **sizes: Any) -> dict[str, Network]:
        """Return logits, two critics and temperature."""
        logits = partial(make_logits, space, size, **sizes)
        critics = partial(make_discrete_critics, space, size, n_critics=2, **sizes)
        cfg = self.config
        return {
            "policy": Network(logits, (Outputs(((B, size),)),)),
            "critic": Network(critics, (Outputs(((None, B, size),)),)),
            "alpha": Network(partial(Temperature, cfg.alpha, cfg.auto_entropy)),
        }

    def make_objective(self, size: int) -> DiscreteSoftActorCritic:
        """Return the objective; the default target entropy is 98 % of the maximum."""
        return DiscreteSoftActorCritic(
            kept_entropy(self.config, 0.98 * math.log(size)), self.config.tau
        )
