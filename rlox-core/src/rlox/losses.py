"""The clipped surrogate objective of PPO, as a function and as the introduction's class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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
