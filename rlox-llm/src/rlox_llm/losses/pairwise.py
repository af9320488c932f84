"""Losses of preference pairs that are registered by name.

Each returns one number per pair; c and r are the log-ratios log π - log π_ref of the chosen and of
the rejected completion, d = c - r, L their lengths, and ε is the ``label_smoothing``. Sources:
Rafailov et al. 2023 (sigmoid), Zhao et al. 2023 (hinge), Azar et al. 2023 (ipo), Ray Chowdhury et
al. 2024 (robust), Mitchell 2023 (cdpo), Wu et al. 2024 (sppo_hard), Chen et al. 2024 (nca_pair),
Jung et al. 2024 (bco_pair), D'Oosterlinck et al. 2024 (apo), Ji et al. 2024 (exo_pair), Melnyk et
al. 2024 (aot), Lu et al. 2024 (discopop), Meng et al. 2024 (lengths); the numbers are those of TRL
1.16.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlox_llm.loss_options import BCOOptions, DiscoPOPOptions
from rlox_llm.losses.batches import PreferenceBatch

__all__ = [
    "DPO_LOSSES",
    "aot",
    "apo_down",
    "apo_zero",
    "bco_pair",
    "cdpo",
    "discopop",
    "exo_pair",
    "hinge",
    "ipo",
    "nca_pair",
    "robust",
    "sigmoid",
    "sigmoid_norm",
    "sppo_hard",
]

DPO_LOSSES = (
    "sigmoid", "hinge", "ipo", "robust", "cdpo", "sppo_hard", "nca_pair", "bco_pair", "apo_zero",
    "apo_down", "exo_pair", "aot", "discopop", "sigmoid_norm",
)  # fmt: skip
"""Names of the losses in this module, each that of its function; plugins register others."""


def _smoothed(logits: Tensor, eps: float) -> Tensor:
    return -(1 - eps) * logsigmoid(logits) - eps * logsigmoid(-logits)


def sigmoid(batch: PreferenceBatch) -> Tensor:
    """Return -log σ(β d)."""
    return -logsigmoid(batch.logits)


def hinge(batch: PreferenceBatch) -> Tensor:
    """Return max(0, 1 - β d)."""
    return torch.relu(1 - batch.logits)


def ipo(batch: PreferenceBatch) -> Tensor:
    """Return (c / L_c - r / L_r - 1 / (2 β))²."""
    return (batch.difference_per_token - 1 / (2 * batch.beta)).square()


def robust(batch: PreferenceBatch) -> Tensor:
    """Return (-(1 - ε) log σ(β d) + ε log σ(-β d)) / (1 - 2 ε)."""
    eps = batch.label_smoothing
    kept, flipped = -logsigmoid(batch.logits), -logsigmoid(-batch.logits)
    return ((1 - eps) * kept - eps * flipped) / (1 - 2 * eps)


def cdpo(batch: PreferenceBatch) -> Tensor:
    """Return -(1 - ε) log σ(β d) - ε log σ(-β d)."""
    return _smoothed(batch.logits, batch.label_smoothing)


def sppo_hard(batch: PreferenceBatch) -> Tensor:
    """Return (c - 1 / (2 β))² + (r + 1 / (2 β))²."""
    middle = 0.5 / batch.beta
    return (batch.chosen - middle).square() + (batch.rejected + middle).square()


def nca_pair(batch: PreferenceBatch) -> Tensor:
    """Return -log σ(β c) - ½ log σ(-β c) - ½ log σ(-β r)."""
    c, r = batch.beta * batch.chosen, batch.beta * batch.rejected
    return -logsigmoid(c) - 0.5 * logsigmoid(-c) - 0.5 * logsigmoid(-r)


def bco_pair(batch: PreferenceBatch, *, options: BCOOptions) -> Tensor:
    """Return -log σ(β c - δ) - log σ(-(β r - δ)), δ a reward in the middle."""
    c, r = batch.beta * batch.chosen, batch.beta * batch.rejected
    return -logsigmoid(c - options.bco_delta) - logsigmoid(-(r - options.bco_delta))


def apo_zero(batch: PreferenceBatch) -> Tensor:
    """Return 1 - σ(β c) + σ(β r)."""
    c, r = batch.beta * batch.chosen, batch.beta * batch.rejected
    return 1 - torch.sigmoid(c) + torch.sigmoid(r)


def apo_down(batch: PreferenceBatch) -> Tensor:
    """Return σ(β c) + 1 - σ(β d)."""
    return torch.sigmoid(batch.beta * batch.chosen) + 1 - torch.sigmoid(batch.logits)


def exo_pair(batch: PreferenceBatch) -> Tensor:
    """Return the KL divergence between σ(±β d) and (1 - ε, ε).

    Raises:
        ValueError: ε is 0.
    """
    eps = batch.label_smoothing
    if not eps:
        raise ValueError("loss_type 'exo_pair' needs label_smoothing above 0; 1e-3 is common")
    win, lose = logsigmoid(batch.logits), logsigmoid(-batch.logits)
    return win.exp() * (win - math.log1p(-eps)) + lose.exp() * (lose - math.log(eps))


def aot(batch: PreferenceBatch) -> Tensor:
    """Return :func:`cdpo` of the differences sorted over the batch, policy and reference apart."""
    policy = batch.policy_chosen - batch.policy_rejected
    reference = batch.ref_chosen - batch.ref_rejected
    sorted_difference = policy.sort(0).values - reference.sort(0).values
    return _smoothed(batch.beta * sorted_difference, batch.label_smoothing)


def discopop(batch: PreferenceBatch, *, options: DiscoPOPOptions) -> Tensor:
    """Return (1 - m) (-log σ(β d)) + m exp(-β d) with m = σ(β d / τ)."""
    mixed = torch.sigmoid(batch.logits / options.discopop_tau)
    return -logsigmoid(batch.logits) * (1 - mixed) + torch.exp(-batch.logits) * mixed


def sigmoid_norm(batch: PreferenceBatch) -> Tensor:
    """Return -log σ(β (c / L_c - r / L_r))."""
    return -logsigmoid(batch.beta * batch.difference_per_token)
