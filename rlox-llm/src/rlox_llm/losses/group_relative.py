"""The loss of GRPO and its relatives, from log-probabilities of sampled tokens.

A registered loss makes losses of tokens from the ratio ρ = π / π_old of a token, or with
``importance_sampling_level="sequence"`` of the geometric mean over its completion (GSPO, Zheng et
al. 2025). To these, β times an estimate of the KL to the reference is added, and all is averaged as
the loss says. :mod:`rlox_llm.losses.policy` has the losses by name; a plugin adds others by the
hook ``rlox_policy_losses``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlox_llm.losses.batches import PolicyBatch, TokenLosses, registered_loss
from rlox_llm.losses.checks import require_name, require_shapes
from rlox_llm.losses.divergence import kl_per_token

__all__ = ["PolicyTerms", "grpo_loss"]

LEVELS = ("token", "sequence")

AVERAGES = ("tokens", "completions", "sums", "length")


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
    engine_ratio: Tensor | None = None,
    options: Any = None,
) -> tuple[Tensor, PolicyTerms]:
    """Return the loss of sampled completions and what it is made of.

    Args:
        logps: (B, T) log-probabilities of the sampled tokens, with gradient, in nats.
        old_logps: (B, T) the same when they were sampled; ``None`` takes ``logps``, so that the
            ratio is exactly 1.
        ref_logps: (B, T) the same under the reference; ``None`` if ``beta`` is 0.
        advantages: (B,)
        mask: (B, T) 1 or True at the tokens of the completion, up to and with its first EOS.
        loss_type: a name of :mod:`rlox_llm.losses.policy` or of a plugin.
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
        num_tokens: tokens of the whole batch, for losses that are averaged over tokens; ``None``
            counts ``mask``. Losses of parts of a batch then add up to that of the batch.
        num_completions: completions of the whole batch for the other losses, in the same way.
        engine_ratio: (B,) weights of the completions, without gradient: π_old by the probability
            under the engine that sampled them; ``None`` weighs all with 1. Not for vespo.
        options: the loss's own options, such as :class:`rlox_llm.loss_options.SAPOOptions`;
            ``None`` takes their defaults.

    Returns:
        The scalar loss and its :class:`PolicyTerms`.

    Raises:
        ValueError: a name is unknown, shapes differ, a reference is missing, or k1 would have no
            expected effect.
    """
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
    batch = PolicyBatch(logps, log_ratios, ratio, adv, weights, epsilon, high, delta)
    found = _checked(
        loss_type, registered_loss("rlox_policy_losses", loss_type, batch, options), logps
    )
    losses = found.values
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
    loss = _averaged(found.average, losses * weights, lengths, tokens, completions, longest)
    outside = torch.zeros_like(ratio) if found.clipped is None else found.clipped.to(logps.dtype)
    return loss, PolicyTerms(
        kl=_mean(kl.detach(), weights),
        clip_fraction=_mean(outside, weights),
        mean_ratio=_mean(ratio.detach(), weights),
    )


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    """Return the mean over tokens; of values (B, 1) that over completions."""
    if values.shape != weights.shape:
        weights = (weights.sum(1, keepdim=True) > 0).to(weights.dtype)
    return (values * weights).sum() / weights.sum().clamp(min=1.0)


def _checked(loss_type: str, found: Any, logps: Tensor) -> TokenLosses:
    """Refuse what a registered loss must not return.

    Raises:
        TypeError: it is no :class:`TokenLosses`.
        ValueError: its values have another shape, or its average is unknown.
    """
    if not isinstance(found, TokenLosses):
        raise TypeError(
            f"loss_type '{loss_type}' must return a TokenLosses, got {type(found).__name__}"
        )
    require_name(f"average of loss_type '{loss_type}'", found.average, AVERAGES)
    b, t = logps.shape
    if found.values.dim() != 2 or len(found.values) != b or found.values.shape[1] not in (1, t):
        raise ValueError(
            f"loss_type '{loss_type}' must return values {(b, t)}, one for each token, got "
            f"{tuple(found.values.shape)}"
        )
    return found


def _averaged(
    average: str,
    losses: Tensor,
    lengths: Tensor,
    tokens: float | Tensor,
    completions: int,
    longest: int,
) -> Tensor:
    """Return the average of masked losses (B, T) that the loss takes."""
    if average == "completions":
        return (losses.sum(1) / lengths).sum() / completions
    if average == "length":
        return losses.sum() / (completions * longest)
    if average == "sums":
        return losses.sum() / completions
    return losses.sum() / tokens
