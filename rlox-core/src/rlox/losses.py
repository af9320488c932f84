"""Losses of policy gradients: PPO's clipped surrogate and the plain policy gradient.

:func:`ppo_loss` is the formula. :class:`ClippedSurrogate` is the same as data, with the numbers of
one run, which is what algorithms minimise and learner backends recognise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlox.batches.rollout import RolloutBatch, RolloutMinibatch, StepRows
from rlox.protocols import OnPolicyActor, RecurrentActor
from rlox.ranks import RANKS

__all__ = [
    "ClippedSurrogate",
    "PPOLoss",
    "PPOTerms",
    "PolicyGradient",
    "PolicyGradientTerms",
    "evaluate_actions",
    "ppo_loss",
    "standardize",
]


@dataclass(frozen=True)
class PPOTerms:
    """The parts of the loss and what is watched beside it; scalars without gradient."""

    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor


def ppo_loss(
    log_probs: Tensor,
    entropy: Tensor,
    values: Tensor,
    old_log_probs: Tensor,
    old_values: Tensor,
    advantages: Tensor,
    returns: Tensor,
    *,
    clip_eps: float,
    vf_coef: float,
    ent_coef: float,
    vf_clip_eps: float | None = None,
    dual_clip: float | None = None,
) -> tuple[Tensor, PPOTerms]:
    """Compute the negated objective of PPO, averaged over B steps.

        r      = π(a|s) / π_old(a|s)
        L_CLIP = mean min(r A, clip(r, 1-ε, 1+ε) A)
        loss   = -L_CLIP + c_1 mean (V - G)² - c_2 mean H

    Args:
        log_probs: (B,) log π(a|s).
        entropy: (B,) H[π(.|s)] in nats.
        values: (B,) V(s).
        old_log_probs: (B,) log π_old(a|s).
        old_values: (B,) value estimates of the policy that acted.
        advantages: (B,) A, normalised or not.
        returns: (B,) G.
        clip_eps: ε.
        vf_coef: c_1.
        ent_coef: c_2.
        vf_clip_eps: if given, the value loss is the larger of the plain one and that of the
            values held within this distance of the old ones.
        dual_clip: if given (> 1), the objective of negative advantages is at least this times A.

    Returns:
        The loss, a scalar, and its terms.

    Source:
        Schulman et al. 2017, eq. 7 and 9; dual clip: Ye et al. 2020, eq. 5; approximate KL:
        Schulman 2020, "Approximating KL divergence", k3; value clip: openai/baselines ppo2.
        The value loss has no factor 1/2, as in eq. 9.
    """
    log_ratio = log_probs - old_log_probs
    ratio = log_ratio.exp()
    clipped_ratio = ratio.clamp(1 - clip_eps, 1 + clip_eps)
    surrogate = torch.minimum(advantages * ratio, advantages * clipped_ratio)
    if dual_clip is not None:
        bounded = torch.maximum(surrogate, dual_clip * advantages)
        surrogate = torch.where(advantages < 0, bounded, surrogate)
    policy_loss = -surrogate.mean()

    squares = (values - returns).square()
    if vf_clip_eps is not None:
        change = values - old_values
        clipped = old_values + change.clamp(-vf_clip_eps, vf_clip_eps)
        larger = torch.maximum(squares, (clipped - returns).square())
        # within the range both are the same but for rounding, which must not decide
        squares = torch.where(change.abs() > vf_clip_eps, larger, squares)
    value_loss = squares.mean()

    mean_entropy = entropy.mean()
    loss = policy_loss + vf_coef * value_loss - ent_coef * mean_entropy
    with torch.no_grad():
        approx_kl = (ratio - 1 - log_ratio).mean()
        clip_fraction = (ratio != clipped_ratio).to(ratio.dtype).mean()
    return loss, PPOTerms(
        policy_loss.detach(), value_loss.detach(), mean_entropy.detach(), approx_kl, clip_fraction
    )


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


def evaluate_actions(
    policy: OnPolicyActor | RecurrentActor, batch: RolloutBatch | RolloutMinibatch | StepRows
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities and entropies of a batch's actions, and values, each (B,).

    In one pass through the policy if it has a method ``evaluate_actions``; the memory of one
    that has any is replayed from the beginning of the rollout.
    """
    masks = () if batch.action_masks is None else (batch.action_masks,)
    if isinstance(policy, RecurrentActor):
        assert batch.initial_state is not None
        assert batch.episode_starts is not None
        evaluated = policy.evaluate_actions(
            batch.obs,
            batch.actions,
            *masks,
            state=batch.initial_state,
            episode_starts=batch.episode_starts,
        )
        active = getattr(batch, "active", None)
        return evaluated if active is None else tuple(part[active] for part in evaluated)  # type: ignore[return-value]
    together = getattr(policy, "evaluate_actions", None)
    if together is not None:
        return together(batch.obs, batch.actions, *masks)  # type: ignore[no-any-return]
    log_probs, entropy = policy.get_logprob_and_entropy(batch.obs, batch.actions, *masks)
    return log_probs, entropy, policy.get_value(batch.obs)


def standardize(advantages: Tensor) -> Tensor:
    """Return (B,) advantages less their mean, in units of their standard deviation.

    Both are of the rows of all ranks together.
    """
    if RANKS:
        return RANKS[0].standardize(advantages)
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


class PPOLoss:
    """:func:`ppo_loss` of a policy, with its coefficients fixed.

    Args:
        clip_eps: ε.
        vf_coef: weight of the value loss.
        ent_coef: weight of the entropy bonus.
        vf_clip_eps: range of the value clip; ``None``: not clipped.
        dual_clip: bound of the dual clip; ``None``: not clipped.
    """

    def __init__(
        self,
        clip_eps: float = 0.2,
        vf_coef: float = 0.5,
        ent_coef: float = 0.01,
        *,
        vf_clip_eps: float | None = None,
        dual_clip: float | None = None,
    ) -> None:
        self.clip_eps = clip_eps
        self.vf_coef = vf_coef
        self.ent_coef = ent_coef
        self.vf_clip_eps = vf_clip_eps
        self.dual_clip = dual_clip

    def __call__(
        self,
        policy: OnPolicyActor,
        obs: Tensor,
        actions: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        returns: Tensor,
        old_values: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of B steps.

        Args:
            policy: the policy being trained.
            obs: (B, *shape).
            actions: (B,) or (B, act_dim).
            old_log_probs: (B,) of the policy that acted.
            advantages: (B,)
            returns: (B,)
            old_values: (B,) of the policy that acted.

        Returns:
            The loss and its terms (``policy_loss``, ``value_loss``, ``entropy``, ``approx_kl``,
            ``clip_fraction``), scalars without gradient.
        """
        log_probs, entropy = policy.get_logprob_and_entropy(obs, actions)
        loss, terms = ppo_loss(
            log_probs,
            entropy,
            policy.get_value(obs),
            old_log_probs,
            old_values,
            advantages,
            returns,
            clip_eps=self.clip_eps,
            vf_coef=self.vf_coef,
            ent_coef=self.ent_coef,
            vf_clip_eps=self.vf_clip_eps,
            dual_clip=self.dual_clip,
        )
        return loss, dict(vars(terms))
