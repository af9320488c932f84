"""Losses of preference pairs, from log-probabilities of completions.

With the log-ratios c = log π(chosen) - log π_ref(chosen) and r of the rejected completion, the
difference d = c - r and ε the ``label_smoothing``:

    sigmoid     -log σ(β d)
    hinge       max(0, 1 - β d)
    ipo         (c / L_c - r / L_r - 1 / (2 β))²,  L the lengths
    robust      (-(1 - ε) log σ(β d) + ε log σ(-β d)) / (1 - 2 ε)
    cdpo        -(1 - ε) log σ(β d) - ε log σ(-β d)
    sppo_hard   (c - 1 / (2 β))² + (r + 1 / (2 β))²
    nca_pair    -log σ(β c) - ½ log σ(-β c) - ½ log σ(-β r)
    bco_pair    -log σ(β c - δ) - log σ(-(β r - δ)),  δ a reward in the middle
    apo_zero    1 - σ(β c) + σ(β r)
    apo_down    σ(β c) + 1 - σ(β d)
    exo_pair    KL between σ(±β d) and (1 - ε, ε)
    aot         cdpo of the differences sorted over the batch, policy and reference apart
    discopop    (1 - m) (-log σ(β d)) + m exp(-β d),  m = σ(β d / τ)
    sigmoid_norm  -log σ(β (c / L_c - r / L_r))

Sources: Rafailov et al. 2023 (sigmoid), Zhao et al. 2023 (hinge), Azar et al. 2023 (ipo), Ray
Chowdhury et al. 2024 (robust), Mitchell 2023 (cdpo), Wu et al. 2024 (sppo_hard), Chen et al. 2024
(nca_pair), Jung et al. 2024 (bco_pair), D'Oosterlinck et al. 2024 (apo), Ji et al. 2024 (exo_pair),
Melnyk et al. 2024 (aot), Lu et al. 2024 (discopop), Meng et al. 2024 (lengths); the numbers are
those of TRL 1.16.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlox_llm.losses.checks import require_name, require_shapes

__all__ = ["DPO_LOSSES", "PreferenceTerms", "dpo_loss"]


@dataclass(frozen=True)
class PreferenceTerms:
    """What a loss of preference pairs is made of, as detached scalars."""

    chosen_reward: Tensor
    """Mean of β (log π - log π_ref) of the chosen completions."""
    rejected_reward: Tensor
    """The same of the rejected completions."""
    accuracy: Tensor
    """Share of pairs whose chosen completion has the higher reward."""
    margin: Tensor
    """Mean difference of the rewards."""


@dataclass(frozen=True)
class _Pairs:
    """The quantities of one batch, by the letters of the module's equations."""

    c: Tensor
    r: Tensor
    chosen_len: Tensor | None
    rejected_len: Tensor | None
    policy: Tensor
    reference: Tensor
    beta: float
    eps: float
    tau: float
    delta: float

    @property
    def logits(self) -> Tensor:
        return self.beta * (self.c - self.r)

    @property
    def normalized(self) -> Tensor:
        """Return c / L_c - r / L_r."""
        assert self.chosen_len is not None
        assert self.rejected_len is not None
        chosen = self.c / self.chosen_len.to(self.c).clamp(min=1.0)
        return chosen - self.r / self.rejected_len.to(self.r).clamp(min=1.0)


def _smoothed(logits: Tensor, eps: float) -> Tensor:
    return -(1 - eps) * logsigmoid(logits) - eps * logsigmoid(-logits)


def _robust(p: _Pairs) -> Tensor:
    kept, flipped = -logsigmoid(p.logits), -logsigmoid(-p.logits)
    return ((1 - p.eps) * kept - p.eps * flipped) / (1 - 2 * p.eps)


def _sppo_hard(p: _Pairs) -> Tensor:
    middle = 0.5 / p.beta
    return (p.c - middle).square() + (p.r + middle).square()


def _nca_pair(p: _Pairs) -> Tensor:
    c, r = p.beta * p.c, p.beta * p.r
    return -logsigmoid(c) - 0.5 * logsigmoid(-c) - 0.5 * logsigmoid(-r)


def _bco_pair(p: _Pairs) -> Tensor:
    c, r = p.beta * p.c, p.beta * p.r
    return -logsigmoid(c - p.delta) - logsigmoid(-(r - p.delta))


def _exo_pair(p: _Pairs) -> Tensor:
    win, lose = logsigmoid(p.logits), logsigmoid(-p.logits)
    return win.exp() * (win - math.log1p(-p.eps)) + lose.exp() * (lose - math.log(p.eps))


def _aot(p: _Pairs) -> Tensor:
    sorted_difference = p.policy.sort(0).values - p.reference.sort(0).values
    return _smoothed(p.beta * sorted_difference, p.eps)


def _discopop(p: _Pairs) -> Tensor:
    mixed = torch.sigmoid(p.logits / p.tau)
    return -logsigmoid(p.logits) * (1 - mixed) + torch.exp(-p.logits) * mixed


DPO_LOSSES: dict[str, Callable[[_Pairs], Tensor]] = {
    "sigmoid": lambda p: -logsigmoid(p.logits),
    "hinge": lambda p: torch.relu(1 - p.logits),
    "ipo": lambda p: (p.normalized - 1 / (2 * p.beta)).square(),
    "robust": _robust,
    "cdpo": lambda p: _smoothed(p.logits, p.eps),
    "sppo_hard": _sppo_hard,
    "nca_pair": _nca_pair,
    "bco_pair": _bco_pair,
    "apo_zero": lambda p: 1 - torch.sigmoid(p.beta * p.c) + torch.sigmoid(p.beta * p.r),
    "apo_down": lambda p: torch.sigmoid(p.beta * p.c) + 1 - torch.sigmoid(p.logits),
    "exo_pair": _exo_pair,
    "aot": _aot,
    "discopop": _discopop,
    "sigmoid_norm": lambda p: -logsigmoid(p.beta * p.normalized),
}
"""The losses by name; each returns one number per pair."""

NEED_LENGTHS = ("ipo", "sigmoid_norm")


def dpo_loss(
    policy_chosen: Tensor,
    policy_rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    *,
    chosen_len: Tensor | None = None,
    rejected_len: Tensor | None = None,
    loss_type: str = "sigmoid",
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    discopop_tau: float = 0.05,
    bco_delta: float = 0.0,
) -> tuple[Tensor, PreferenceTerms]:
    """Return the mean loss of preference pairs and what it is made of.

    Args:
        policy_chosen: (B,) log-probabilities of the chosen completions under the policy, summed
            over their tokens, in nats, with gradient.
        policy_rejected: (B,) the same of the rejected completions.
        ref_chosen: (B,) the same of the chosen completions under the reference.
        ref_rejected: (B,) the same of the rejected completions under the reference.
        chosen_len: (B,) tokens of the chosen completions, for ipo and sigmoid_norm.
        rejected_len: (B,) tokens of the rejected completions.
        loss_type: a name of :data:`DPO_LOSSES`.
        beta: β, how strongly the policy is held to the reference.
        label_smoothing: ε, the probability that a label is wrong, below 0.5; exo_pair needs it.
        discopop_tau: τ of discopop.
        bco_delta: δ of bco_pair, in the paper a running mean of the rewards; 0 in TRL.

    Returns:
        The scalar loss and its :class:`PreferenceTerms`.

    Raises:
        ValueError: the name is unknown, shapes differ, a number is out of its range, or lengths
            that the loss needs are missing.
    """
    require_name("loss_type", loss_type, DPO_LOSSES)
    if policy_chosen.dim() != 1:
        raise ValueError(f"policy_chosen must have shape (B,), got {tuple(policy_chosen.shape)}")
    named = {"policy_rejected": policy_rejected, "ref_chosen": ref_chosen,
             "ref_rejected": ref_rejected, "chosen_len": chosen_len,
             "rejected_len": rejected_len}  # fmt: skip
    require_shapes(tuple(policy_chosen.shape), named)
    if not beta > 0:
        raise ValueError(f"beta must be positive, got {beta}")
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing must lie in [0, 0.5), got {label_smoothing}")
    if loss_type == "exo_pair" and not label_smoothing:
        raise ValueError("loss_type 'exo_pair' needs label_smoothing above 0; 1e-3 is common")
    if loss_type in NEED_LENGTHS and (chosen_len is None or rejected_len is None):
        raise ValueError(f"loss_type '{loss_type}' needs chosen_len and rejected_len")
    c, r = policy_chosen - ref_chosen, policy_rejected - ref_rejected
    pairs = _Pairs(
        c=c,
        r=r,
        chosen_len=chosen_len,
        rejected_len=rejected_len,
        policy=policy_chosen - policy_rejected,
        reference=ref_chosen - ref_rejected,
        beta=beta,
        eps=label_smoothing,
        tau=discopop_tau,
        delta=bco_delta,
    )
    loss = DPO_LOSSES[loss_type](pairs).mean()
    chosen, rejected = (beta * c).detach(), (beta * r).detach()
    return loss, PreferenceTerms(
        chosen_reward=chosen.mean(),
        rejected_reward=rejected.mean(),
        accuracy=(chosen > rejected).to(c.dtype).mean(),
        margin=(chosen - rejected).mean(),
    )
