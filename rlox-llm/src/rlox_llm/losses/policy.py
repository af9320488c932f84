"""Losses of sampled completions: registered losses of tokens, and their average.

A registered loss computes losses of tokens from the ratio ρ = π / π_old of each token, or, with
``importance_sampling_level="sequence"``, its geometric mean over the completion (GSPO, Zheng et al.
2025). :func:`grpo_loss` adds β times an estimate of the KL to the reference, and averages all as
the loss specifies. Plugins add losses through the hook ``rlox_policy_losses``.

A is the advantage, and sg stops the gradient. Sources: Shao et al. 2024 (grpo), Liu et al. 2025
(dr_grpo), Yu et al. 2025 (dapo), MiniMax 2025 (cispo), Gao et al. 2025 (sapo); the numbers are
those of TRL 1.16.

With r = log q - log p at a token sampled from p, the estimators of the KL per token are (Schulman
2020, "Approximating KL Divergence"):

    k1 = -r        k2 = r² / 2        k3 = exp(r) - r - 1
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlox_llm.configs import SAPOOptions, VESPOOptions
from rlox_llm.losses.registered import registered_loss, require_name, require_shapes

LEVELS = ("token", "sequence")

AVERAGES = ("tokens", "completions", "sums", "length")

LOWEST_LOG_WEIGHT = -18.420680743952367
"""log 1e-8, the lower bound of a completion's log-weight in VESPO."""

HIGHEST_LOG_WEIGHT = 20.0
"""Upper bound of the log-weight in VESPO, and of each token's absolute log-ratio in it."""

KL_ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda r: -r,
    "k2": lambda r: r.square() / 2,
    "k3": lambda r: r.expm1() - r,
}
"""Functions of r = log q - log p that return the estimate, by name."""


@dataclass(frozen=True)
class PolicyBatch:
    """Argument of losses of the hook ``rlox_policy_losses``: B completions of up to T tokens.

    A loss ignores the KL to the reference, the mask and the average.
    """

    logps: Tensor
    """(B, T) log-probabilities of the sampled tokens, with gradient, in nats."""
    log_ratios: Tensor
    """(B, T) log π - log π_old of each token, with gradient."""
    ratio: Tensor
    """(B, T) importance ratio π / π_old of each token, with gradient; (B, 1), its geometric mean
    over the completion, with ``importance_sampling_level="sequence"``."""
    advantages: Tensor
    """(B, 1)"""
    mask: Tensor
    """(B, T) 1 at the tokens of the completions, else 0."""
    epsilon: float
    """Bound of a ratio's distance below 1."""
    epsilon_high: float
    """Bound of a ratio's distance above 1."""
    delta: float | None
    """Bound of the ratio, also at negative advantages; ``None``: none."""


@dataclass(frozen=True)
class TokenLosses:
    """Result of a loss of the hook ``rlox_policy_losses``."""

    values: Tensor
    """(B, T) or (B, 1), the loss of each token."""
    clipped: Tensor | None = None
    """(B, T) or (B, 1) whether the loss clips a ratio, for the metric; ``None``: no clipping."""
    average: str = "tokens"
    """``"tokens"``: over all tokens of the batch; ``"completions"``: over the tokens of each
    completion, then over completions; ``"sums"``: over completions of their sums; ``"length"``:
    these sums' average, divided by the greatest length."""


def _clipped(batch: PolicyBatch, average: str) -> TokenLosses:
    """Return -min(ρ A, clip(ρ, 1 - ε, 1 + ε_high) A) and the clipped positions."""
    ratio, adv = batch.ratio, batch.advantages
    low, high = 1 - batch.epsilon, 1 + batch.epsilon_high
    bounded = ratio if batch.delta is None else ratio.clamp(max=batch.delta)
    losses = -torch.minimum(bounded * adv, ratio.clamp(low, high) * adv)
    outside = ((ratio < low) & (adv < 0)) | ((ratio > high) & (adv > 0))
    return TokenLosses(losses, outside, average)


def grpo(batch: PolicyBatch) -> TokenLosses:
    """Return the clipped objective, averaged over the tokens of each completion."""
    return _clipped(batch, "completions")


def bnpo(batch: PolicyBatch) -> TokenLosses:
    """Return the clipped objective, averaged over all tokens."""
    return _clipped(batch, "tokens")


def dapo(batch: PolicyBatch) -> TokenLosses:
    """Return the clipped objective, averaged over all tokens."""
    return _clipped(batch, "tokens")


def dr_grpo(batch: PolicyBatch) -> TokenLosses:
    """Return the clipped objective, summed and divided by the greatest length."""
    return _clipped(batch, "length")


def luspo(batch: PolicyBatch) -> TokenLosses:
    """Return the clipped objective, summed over each completion."""
    return _clipped(batch, "sums")


def cispo(batch: PolicyBatch) -> TokenLosses:
    """Return -sg[min(ρ, ε_high)] A log π: here ε_high is the largest ratio itself."""
    ratio, high = batch.ratio, batch.epsilon_high
    losses = -ratio.clamp(max=high).detach() * batch.advantages * batch.logps
    return TokenLosses(losses, (ratio > high) & (batch.advantages > 0))


def sapo(batch: PolicyBatch, *, options: SAPOOptions) -> TokenLosses:
    """Return -4/τ σ(τ (ρ - 1)) A with τ by the sign of A, averaged as in :func:`grpo`."""
    adv = batch.advantages
    tau = _by_sign(adv, adv > 0, options.sapo_temperature_pos, options.sapo_temperature_neg)
    losses = -4 / tau * torch.sigmoid(tau * (batch.ratio - 1)) * adv
    return TokenLosses(losses, average="completions")


def vespo(batch: PolicyBatch, *, options: VESPOOptions) -> TokenLosses:
    """Return -sg[φ(w)] A log π, a soft replacement of clipping.

    With w = Π_t π(t) / π_old(t), the importance weight of the whole completion, and k, λ chosen by
    the sign of its advantage, φ(w) = w^k exp(λ (1 - w)) is 1 at w = 1 and falls to 0 on both sides.
    """
    with torch.no_grad():
        bounded = batch.log_ratios.clamp(-HIGHEST_LOG_WEIGHT, HIGHEST_LOG_WEIGHT)
        log_w = (bounded * batch.mask).sum(1, keepdim=True)
        log_w = log_w.clamp(LOWEST_LOG_WEIGHT, HIGHEST_LOG_WEIGHT)
        adv, positive = batch.advantages, batch.advantages >= 0
        k = _by_sign(adv, positive, options.vespo_k_pos, options.vespo_k_neg)
        rate = _by_sign(adv, positive, options.vespo_lambda_pos, options.vespo_lambda_neg)
        phi = (k * log_w + rate.clamp(min=1e-4) * (1 - log_w.exp())).exp()
        phi = phi.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return TokenLosses(-phi * adv * batch.logps)


def _by_sign(like: Tensor, positive: Tensor, above: float, below: float) -> Tensor:
    return torch.where(positive, like.new_tensor(above), like.new_tensor(below))


def kl_per_token(logps: Tensor, ref_logps: Tensor, estimator: str = "k3") -> Tensor:
    """Estimate KL(policy ‖ reference) at each sampled token.

    Args:
        logps: (B, T) log-probabilities of the sampled tokens under the policy, in nats.
        ref_logps: (B, T) the same under the reference.
        estimator: a name of :data:`KL_ESTIMATORS`. k1 and k3 are unbiased; the gradient of k2
            alone is unbiased without an importance ratio.

    Returns:
        (B, T) estimates in nats.

    Raises:
        ValueError: the estimator is unknown.
    """
    return KL_ESTIMATORS[require_name("kl_estimator", estimator, KL_ESTIMATORS)](ref_logps - logps)


def policy_loss(name: str, options: Any = None) -> Callable[[PolicyBatch], TokenLosses]:
    """Return the registered loss of a name, with a check of its output.

    Args:
        name: name of a function of this module, or of a plugin.
        options: the loss's own options, such as :class:`rlox_llm.configs.SAPOOptions`; ``None``:
            their defaults.

    Raises:
        ValueError: no loss of that name is registered.
        PluginError: the plugin's loss is broken.
    """
    function = registered_loss("rlox_policy_losses", name, options)

    def loss(batch: PolicyBatch) -> TokenLosses:
        found = function(batch)
        if not isinstance(found, TokenLosses):
            raise TypeError(
                f"loss_type '{name}' must return a TokenLosses, got {type(found).__name__}"
            )
        require_name(f"average of loss_type '{name}'", found.average, AVERAGES)
        b, t = batch.logps.shape
        if found.values.dim() != 2 or len(found.values) != b or found.values.shape[1] not in (1, t):
            raise ValueError(
                f"loss_type '{name}' must return values {(b, t)}, one for each token, got "
                f"{tuple(found.values.shape)}"
            )
        return found

    return loss


@dataclass(frozen=True)
class PolicyTerms:
    """Terms of a loss of sampled completions, as detached scalars."""

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
    loss_type: str | Callable[[PolicyBatch], TokenLosses] = "dapo",
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
    """Return the loss of sampled completions and its terms.

    Args:
        logps: (B, T) log-probabilities of the sampled tokens, with gradient, in nats.
        old_logps: (B, T) the same at sampling time; ``None``: ``logps``, so that the ratio is
            exactly 1.
        ref_logps: (B, T) the same under the reference; ``None`` if ``beta`` is 0.
        advantages: (B,)
        mask: (B, T) 1 or True at the tokens of the completion, including its first EOS.
        loss_type: a name of :mod:`rlox_llm.losses.policy` or of a plugin, or a result of
            :func:`policy_loss`.
        importance_sampling_level: whether a ratio is a token's or a completion's.
        epsilon: bound of a ratio's distance below 1.
        epsilon_high: bound of its distance above 1; ``None``: ``epsilon``. In cispo, the largest
            ratio itself.
        delta: bound of the ratio, also at negative advantages; ``None``: none.
        beta: weight of the KL to the reference.
        kl_estimator: a name of :data:`rlox_llm.losses.KL_ESTIMATORS`.
        use_bias_correction_kl: multiply the estimate by the ratio, whose gradient makes the
            estimate's gradient unbiased.
        max_completion_length: divisor of dr_grpo; ``None``: T.
        num_tokens: tokens of the whole batch, for losses averaged over tokens; ``None``: counted
            from ``mask``. With it, losses of a batch's parts add up to the batch's.
        num_completions: completions of the whole batch, the same for the other losses.
        engine_ratio: (B,) weights of the completions, without gradient: π_old divided by the
            sampling engine's probability; ``None``: 1 for all. Not for vespo.
        options: the loss's own options, such as :class:`rlox_llm.configs.SAPOOptions`; ``None``:
            their defaults.

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
    loss_of = policy_loss(loss_type, options) if isinstance(loss_type, str) else loss_type
    found = loss_of(batch)
    losses = found.values
    if engine_ratio is not None:
        losses = losses * engine_ratio.unsqueeze(1)
    kl = torch.zeros_like(logps)
    if beta and ref_logps is not None:
        kl = kl_per_token(logps, ref_logps, kl_estimator)
        kl = kl * ratio if use_bias_correction_kl else kl
        losses = losses + beta * kl
    completions = b if num_completions is None else num_completions
    losses = losses * weights
    if found.average == "completions":
        loss = (losses.sum(1) / lengths).sum() / completions
    elif found.average == "length":
        loss = losses.sum() / (completions * (max_completion_length or t))
    elif found.average == "sums":
        loss = losses.sum() / completions
    else:
        loss = losses.sum() / (weights.sum().clamp(min=1.0) if num_tokens is None else num_tokens)
    outside = torch.zeros_like(ratio) if found.clipped is None else found.clipped.to(logps.dtype)
    return loss, PolicyTerms(
        kl=_mean(kl.detach(), weights),
        clip_fraction=_mean(outside, weights),
        mean_ratio=_mean(ratio.detach(), weights),
    )


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    """Return the mean over tokens; for values (B, 1), the mean over completions."""
    if values.shape != weights.shape:
        weights = (weights.sum(1, keepdim=True) > 0).to(weights.dtype)
    return (values * weights).sum() / weights.sum().clamp(min=1.0)
