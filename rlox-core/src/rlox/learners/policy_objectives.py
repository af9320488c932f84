"""Objectives of policy gradients as data: PPO's clipped surrogate, the plain policy gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rlox.batches.rollout import RolloutBatch, RolloutMinibatch
from rlox.losses import PPOTerms, ppo_loss
from rlox.networks.predict import evaluate_actions

__all__ = ["ClippedSurrogate", "PolicyGradient", "PolicyGradientTerms"]


@dataclass(frozen=True)
class ClippedSurrogate:
    """PPO's loss; see :func:`rlox.losses.ppo_loss`."""

    clip_eps: float
    """Clip range ε of the probability ratio (Schulman et al. 2017, eq. 7)."""
    vf_coef: float
    """Weight c_1 of the value loss (eq. 9)."""
    ent_coef: float
    """Weight c_2 of the entropy bonus, in 1/nats (eq. 9)."""
    vf_clip_eps: float | None = None
    """Range of the value clip, in units of the return (openai/baselines ppo2); ``None``: off."""
    dual_clip: float | None = None
    """Bound of the objective at negative advantages (Ye et al. 2020, eq. 5); ``None``: off."""
    normalize_advantages: bool = True
    """Standardise advantages within each minibatch (Huang et al. 2022, detail 7)."""

    def loss(
        self, policy: Any, minibatch: RolloutBatch | RolloutMinibatch
    ) -> tuple[Tensor, PPOTerms]:
        """Return the loss of B steps and its terms."""
        advantages = minibatch.advantages
        if self.normalize_advantages:
            advantages = standardize(advantages)
        log_probs, entropy, values = evaluate_actions(policy, minibatch)
        return ppo_loss(
            log_probs,
            entropy,
            values,
            minibatch.log_probs,
            minibatch.values,
            advantages,
            minibatch.returns,
            clip_eps=self.clip_eps,
            vf_coef=self.vf_coef,
            ent_coef=self.ent_coef,
            vf_clip_eps=self.vf_clip_eps,
            dual_clip=self.dual_clip,
        )


@dataclass(frozen=True)
class PolicyGradientTerms:
    """The parts of the loss; scalars without gradient."""

    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor


@dataclass(frozen=True)
class PolicyGradient:
    """The loss of advantage actor-critic: ``-mean A log π(a|s) + c_v mean (V - G)² - c_e mean H``.

    Source:
        Mnih et al. 2016, algorithm S3 and sec. 4, averaged over B steps.
    """

    vf_coef: float
    """Weight c_v of the value loss."""
    ent_coef: float = 0.0
    """Weight c_e of the entropy bonus, in 1/nats."""
    normalize_advantages: bool = False
    """Standardise the advantages of the B steps."""

    def loss(
        self, policy: Any, minibatch: RolloutBatch | RolloutMinibatch
    ) -> tuple[Tensor, PolicyGradientTerms]:
        """Return the loss of B steps and its terms."""
        advantages = minibatch.advantages
        if self.normalize_advantages:
            advantages = standardize(advantages)
        log_probs, entropy, values = evaluate_actions(policy, minibatch)
        policy_loss = -(advantages * log_probs).mean()
        value_loss = (values - minibatch.returns).square().mean()
        mean_entropy = entropy.mean()
        loss = policy_loss + self.vf_coef * value_loss - self.ent_coef * mean_entropy
        terms = policy_loss.detach(), value_loss.detach(), mean_entropy.detach()
        return loss, PolicyGradientTerms(*terms)


def standardize(advantages: Tensor) -> Tensor:
    """Return (B,) advantages less their mean, in units of their standard deviation."""
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)
