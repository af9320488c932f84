"""Losses of sampled completions that are registered by name.

Each returns the loss of every token; ρ is the importance ratio, A the advantage, and sg stops the
gradient. Sources: Shao et al. 2024 (grpo), Liu et al. 2025 (dr_grpo), Yu et al. 2025 (dapo),
MiniMax 2025 (cispo), Gao et al. 2025 (sapo); the numbers are those of TRL 1.16.
"""

from __future__ import annotations

import torch

from rlox_llm.loss_options import SAPOOptions, VESPOOptions
from rlox_llm.losses.batches import PolicyBatch, TokenLosses
from rlox_llm.losses.vespo import VespoWeights

__all__ = ["LOSS_TYPES", "bnpo", "cispo", "dapo", "dr_grpo", "grpo", "luspo", "sapo", "vespo"]

LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")
"""Names of the losses in this module, each that of its function; plugins register others."""


def _clipped(batch: PolicyBatch, average: str) -> TokenLosses:
    """Return -min(ρ A, clip(ρ, 1 - ε, 1 + ε_high) A), and where it is clipped."""
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
    """Return the clipped objective, whose sums are divided by the greatest length."""
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
    """Return -4/τ σ(τ (ρ - 1)) A with τ by the sign of A, averaged as of :func:`grpo`."""
    adv = batch.advantages
    given = (options.sapo_temperature_pos, options.sapo_temperature_neg)
    pos, neg = (adv.new_tensor(t) for t in given)
    tau = torch.where(adv > 0, pos, neg)
    losses = -4 / tau * torch.sigmoid(tau * (batch.ratio - 1)) * adv
    return TokenLosses(losses, average="completions")


def vespo(batch: PolicyBatch, *, options: VESPOOptions) -> TokenLosses:
    """Return -sg[φ(w)] A log π with w of the whole completion, see :mod:`rlox_llm.losses.vespo`."""
    weights = VespoWeights(
        k_pos=options.vespo_k_pos, lambda_pos=options.vespo_lambda_pos,
        k_neg=options.vespo_k_neg, lambda_neg=options.vespo_lambda_neg,
    )  # fmt: skip
    phi = weights(batch.advantages, batch.log_ratios, batch.mask)
    return TokenLosses(-phi * batch.advantages * batch.logps)
