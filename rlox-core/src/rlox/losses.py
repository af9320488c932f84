"""The clipped surrogate objective of PPO, as a function and as the introduction's class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rlox.protocols import OnPolicyActor

__all__ = ["PPOLoss", "PPOTerms", "ppo_loss"]


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
        vf_clip_eps: where given, the value loss is the larger of the plain one and that of the
            values held within this distance of the old ones.
        dual_clip: where given (> 1), the objective of negative advantages is at least this times A.

    Returns:
        The loss, a scalar, and its terms.

    Source:
        Schulman et al. 2017, eq. 7 and 9; dual clip: Ye et al. 2020, eq. 5; approximate KL:
        Schulman 2020, "Approximating KL divergence", k3; value clip: openai/baselines ppo2.
        The value loss has no factor 1/2, as in eq. 9.
    """
    loss, *terms = _ClippedObjective.apply(
        log_probs,
        entropy,
        values,
        old_log_probs,
        old_values,
        advantages,
        returns,
        clip_eps,
        vf_coef,
        ent_coef,
        vf_clip_eps,
        dual_clip,
    )
    return loss, PPOTerms(*terms)


class _ClippedObjective(torch.autograd.Function):
    """:func:`ppo_loss` with its gradient in closed form.

    Autograd would record some thirty operators on B numbers each and walk them backwards; for the
    networks of RL that takes longer than the networks themselves.
    """

    @staticmethod
    def forward(
        ctx: Any,
        log_probs: Tensor,
        entropy: Tensor,
        values: Tensor,
        old_log_probs: Tensor,
        old_values: Tensor,
        advantages: Tensor,
        returns: Tensor,
        clip_eps: float,
        vf_coef: float,
        ent_coef: float,
        vf_clip_eps: float | None,
        dual_clip: float | None,
    ) -> tuple[Tensor, ...]:
        size = len(log_probs)
        log_ratio = log_probs - old_log_probs
        ratio = log_ratio.exp()
        clipped_ratio = ratio.clamp(1 - clip_eps, 1 + clip_eps)
        plain, clipped = advantages * ratio, advantages * clipped_ratio
        objective = torch.minimum(plain, clipped)
        # the gradient A r flows where the minimum is the plain objective
        follows = plain <= clipped
        if dual_clip is not None:
            bounded = (advantages < 0) & (objective < dual_clip * advantages)
            objective = torch.where(bounded, dual_clip * advantages, objective)
            follows &= ~bounded
        policy_loss = -objective.mean()

        errors = values - returns
        squares = errors.square()
        if vf_clip_eps is not None:
            change = values - old_values
            clipped_errors = old_values + change.clamp(-vf_clip_eps, vf_clip_eps) - returns
            clipped_squares = clipped_errors.square()
            # within the range both are the same but for rounding, which must not decide; beyond it
            # the clipped value is a constant
            clips = (change.abs() > vf_clip_eps) & (clipped_squares > squares)
            errors = errors * ~clips
            squares = torch.where(clips, clipped_squares, squares)
        value_loss = squares.mean()

        mean_entropy = entropy.mean()
        loss = policy_loss + vf_coef * value_loss - ent_coef * mean_entropy
        ctx.save_for_backward((plain * follows).div_(-size), errors.mul_(2 * vf_coef / size))
        ctx.entropy_gradient = -ent_coef / size
        approx_kl = (ratio - 1).sub_(log_ratio).mean()
        clip_fraction = (ratio != clipped_ratio).to(ratio.dtype).mean()
        terms = policy_loss, value_loss, mean_entropy, approx_kl, clip_fraction
        ctx.mark_non_differentiable(*terms)
        return loss, *terms

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        log_prob_gradient, value_gradient = ctx.saved_tensors
        entropy_gradient = (grad * ctx.entropy_gradient).expand(len(log_prob_gradient))
        return (
            log_prob_gradient * grad,
            entropy_gradient,
            value_gradient * grad,
            *(None,) * 9,
        )


class PPOLoss:
    """:func:`ppo_loss` of a policy, with its coefficients fixed.

    Args:
        clip_eps: ε.
        vf_coef: weight of the value loss.
        ent_coef: weight of the entropy bonus.
        vf_clip_eps: range of the value clip; none: not clipped.
        dual_clip: bound of the dual clip; none: not clipped.
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
