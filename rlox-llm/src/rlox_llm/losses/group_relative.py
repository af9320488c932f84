"""The loss of GRPO and its relatives, from log-probabilities of sampled tokens.

With the ratio ρ = π / π_old of a token, or with ``importance_sampling_level="sequence"`` of the
geometric mean over its completion (GSPO), the objective of a token is

    grpo, bnpo, dr_grpo, dapo, luspo   min(ρ A, clip(ρ, 1 - ε, 1 + ε_high) A)
    cispo                              sg[min(ρ, ε_high)] A log π
    sapo                               4/τ σ(τ (ρ - 1)) A,   τ by the sign of A
    vespo                              sg[φ(w)] A log π,     w of the whole completion

where sg stops the gradient. Its negative, plus β times an estimate of the KL to the reference, is
averaged over the tokens T_i of each completion and then over completions (grpo, sapo); over all
tokens (bnpo; dapo, cispo and vespo, which count those of the whole batch); over completions times a
fixed length (dr_grpo); or summed over T_i and averaged over completions (luspo).

Sources: Shao et al. 2024 (grpo), Liu et al. 2025 (dr_grpo), Yu et al. 2025 (dapo), MiniMax 2025
(cispo), Zheng et al. 2025 (GSPO), Gao et al. 2025 (sapo); the numbers are those of TRL 1.16.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlox_llm.losses.checks import require_name, require_shapes
from rlox_llm.losses.divergence import kl_per_token
from rlox_llm.losses.vespo import VespoWeights

__all__ = ["LOSS_TYPES", "PolicyTerms", "grpo_loss"]

LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")
"""Names of the losses."""

LEVELS = ("token", "sequence")

CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")


@dataclass(frozen=True)
class PolicyTerms:
    """What a loss of sampled completions is made of, as detached scalars."""

    kl: Tensor
    """Mean estimate of the KL to the reference over tokens, in nats; 0 without a reference."""
    clip_fraction: Tensor
    """Share of tokens, or of completions, whose ratio the loss clips."""
    mean_ratio: Tensor
    """Mean importance ratio over tokens, or over completions."""


def grpo_loss(
    logps: Tensor,
    old_logps: Tensor | None,
    ref_logps: Tensor | None,
    advantages: Tensor,
    mask: Tensor,
    *,
    loss_type: str = "dapo",
    importance_sampling_level: str = "token",
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    delta: float | None = None,
    beta: float = 0.0,
    kl_estimator: str = "k3",
    use_bias_correction_kl: bool = True,
    max_completion_length: int | None = None,
    num_tokens: float | Tensor | None = None,
    num_completions: int | None = None,
    sapo_temperature_pos: float = 1.0,
    sapo_temperature_neg: float = 1.05,
    vespo: VespoWeights | None = None,
    engine_ratio: Tensor | None = None,
) -> tuple[Tensor, PolicyTerms]:
    """Return the loss of sampled completions and what it is made of.

    Args:
        logps: (B, T) log-probabilities of the sampled tokens, with gradient, in nats.
        old_logps: (B, T) the same when they were sampled; ``None`` takes ``logps``, so that the
            ratio is exactly 1.
        ref_logps: (B, T) the same under the reference; ``None`` if ``beta`` is 0.
        advantages: (B,)
        mask: (B, T) 1 or True at the tokens of the completion, up to and with its first EOS.
        loss_type: a name of :data:`LOSS_TYPES`.
        importance_sampling_level: whether a ratio is a token's or a completion's.
        epsilon: how far a ratio may fall below 1.
        epsilon_high: how far it may rise above 1; ``None`` takes ``epsilon``. For cispo, the
            largest ratio itself.
        delta: largest ratio at negative advantages too; ``None`` sets no bound.
        beta: weight of the KL to the reference.
        kl_estimator: a name of :data:`rlox_llm.losses.KL_ESTIMATORS`.
        use_bias_correction_kl: multiply the estimate by the ratio, whose gradient makes that of
            the estimate unbiased.
        max_completion_length: the length dr_grpo divides by; ``None`` takes T.
        num_tokens: tokens of the whole batch for dapo, cispo and vespo; ``None`` counts ``mask``.
            Losses of parts of a batch then add up to that of the batch.
        num_completions: completions of the whole batch for the other losses, in the same way;
            bnpo takes ``num_tokens``.
        sapo_temperature_pos: τ of sapo at positive advantages.
        sapo_temperature_neg: τ of sapo at other advantages.
        vespo: the weights of vespo; ``None`` takes the defaults.
        engine_ratio: (B,) weights of the completions, without gradient: π_old by the probability
            under the engine that sampled them; ``None`` weighs all with 1. Not for vespo.

    Returns:
        The scalar loss and its :class:`PolicyTerms`.

    Raises:
        ValueError: a name is unknown, shapes differ, a reference is missing, or k1 would have no
            expected effect.
    """
    require_name("loss_type", loss_type, LOSS_TYPES)
    level = require_name("importance_sampling_level", importance_sampling_level, LEVELS)
    if logps.dim() != 2:
        raise ValueError(f"logps must have shape (B, T), got {tuple(logps.shape)}")
    b, t = logps.shape
    require_shapes((b, t), {"old_logps": old_logps, "ref_logps": ref_logps, "mask": mask})
    require_shapes((b,), {"advantages": advantages, "engine_ratio": engine_ratio})
    if beta and ref_logps is None:
        raise ValueError(f"beta is {beta}, which needs ref_logps; pass them, or beta=0")
    if beta and kl_estimator == "k1" and not use_bias_correction_kl:
        raise ValueError(
            "the gradient of kl_estimator='k1' alone is 0 in expectation; leave "
            "use_bias_correction_kl on, or take 'k2' or 'k3'"
        )
    weights = mask.to(logps.dtype)
    lengths = weights.sum(1).clamp(min=1.0)
    adv = advantages.to(logps.dtype).unsqueeze(1)
    log_ratios = logps - (logps.detach() if old_logps is None else old_logps)
    if level == "sequence":
        ratio = ((log_ratios * weights).sum(1) / lengths).unsqueeze(1).exp()
    else:
        ratio = log_ratios.exp()
    high = epsilon if epsilon_high is None else epsilon_high
    if loss_type in CLIPPED:
        losses, outside = _clipped(ratio, adv, epsilon, high, delta)
    elif loss_type == "cispo":
        losses = -ratio.clamp(max=high).detach() * adv * logps
        outside = (ratio > high) & (adv > 0)
    else:
        outside = torch.zeros_like(ratio, dtype=torch.bool)
        if loss_type == "sapo":
            pos, neg = (adv.new_tensor(t) for t in (sapo_temperature_pos, sapo_temperature_neg))
            tau = torch.where(adv > 0, pos, neg)
            losses = -4 / tau * torch.sigmoid(tau * (ratio - 1)) * adv
        else:
            losses = -(vespo or VespoWeights())(adv, log_ratios, weights) * adv * logps
    if engine_ratio is not None:
        losses = losses * engine_ratio.unsqueeze(1)
    kl = torch.zeros_like(logps)
    if beta and ref_logps is not None:
        kl = kl_per_token(logps, ref_logps, kl_estimator)
        kl = kl * ratio if use_bias_correction_kl else kl
        losses = losses + beta * kl
    tokens = weights.sum().clamp(min=1.0) if num_tokens is None else num_tokens
    completions = b if num_completions is None else num_completions
    longest = max_completion_length or t
    loss = _averaged(loss_type, losses * weights, lengths, tokens, completions, longest)
    kept = weights if ratio.shape[1] == t else (weights.sum(1, keepdim=True) > 0).to(logps.dtype)
    return loss, PolicyTerms(
        kl=_mean(kl.detach(), weights),
        clip_fraction=_mean(outside.to(logps.dtype), kept),
        mean_ratio=_mean(ratio.detach(), kept),
    )


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    return (values * weights).sum() / weights.sum().clamp(min=1.0)


def _clipped(
    ratio: Tensor, adv: Tensor, epsilon: float, high: float, delta: float | None
) -> tuple[Tensor, Tensor]:
    """Return the negative clipped objective, and where it is clipped."""
    bounded = ratio if delta is None else ratio.clamp(max=delta)
    losses = -torch.minimum(bounded * adv, ratio.clamp(1 - epsilon, 1 + high) * adv)
    outside = ((ratio < 1 - epsilon) & (adv < 0)) | ((ratio > 1 + high) & (adv > 0))
    return losses, outside


def _averaged(
    loss_type: str,
    losses: Tensor,
    lengths: Tensor,
    tokens: float | Tensor,
    completions: int,
    longest: int,
) -> Tensor:
    """Return the average of masked losses (B, T) that the loss takes."""
    if loss_type in ("grpo", "sapo"):
        return (losses.sum(1) / lengths).sum() / completions
    if loss_type == "dr_grpo":
        return losses.sum() / (completions * longest)
    if loss_type == "luspo":
        return losses.sum() / completions
    return losses.sum() / tokens
