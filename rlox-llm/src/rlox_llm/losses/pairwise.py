"""Losses of preference pairs, registered by name, and their mean.

Each returns one number per pair; c and r are the log-ratios log π - log π_ref of the chosen and of
the rejected completion, d = c - r, L their lengths, and ε is the ``label_smoothing``. Plugins add
losses through the hook ``rlox_preference_losses``. Sources:
Rafailov et al. 2023 (sigmoid), Zhao et al. 2023 (hinge), Azar et al. 2023 (ipo), Ray Chowdhury et
al. 2024 (robust), Mitchell 2023 (cdpo), Wu et al. 2024 (sppo_hard), Chen et al. 2024 (nca_pair),
Jung et al. 2024 (bco_pair), D'Oosterlinck et al. 2024 (apo), Ji et al. 2024 (exo_pair), Melnyk et
al. 2024 (aot), Lu et al. 2024 (discopop), Meng et al. 2024 (lengths); the numbers are those of TRL
1.16.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlox_llm.configs import BCOOptions, DiscoPOPOptions
from rlox_llm.losses.registered import registered_loss, require_shapes


@dataclass(frozen=True)
class PreferenceBatch:
    """Argument of losses of the hook ``rlox_preference_losses``: B pairs of completions.

    A loss returns one number per pair, (B,).
    """

    policy_chosen: Tensor
    """(B,) log-probabilities of the chosen completions under the policy, with gradient, in nats."""
    policy_rejected: Tensor
    """(B,) the same for the rejected ones."""
    ref_chosen: Tensor
    """(B,) the same for the chosen ones under the reference."""
    ref_rejected: Tensor
    """(B,) the same for the rejected ones under the reference."""
    beta: float
    """β, the strength of the pull to the reference."""
    label_smoothing: float
    """ε, the probability that a label is wrong."""
    lengths: tuple[Tensor, Tensor] | None = None
    """Token counts (B,) of the chosen and the rejected completions; always there in training."""

    @property
    def chosen(self) -> Tensor:
        """Log-ratios c = log π - log π_ref (B,) of the chosen completions."""
        return self.policy_chosen - self.ref_chosen

    @property
    def rejected(self) -> Tensor:
        """Log-ratios r (B,) of the rejected completions."""
        return self.policy_rejected - self.ref_rejected

    @property
    def logits(self) -> Tensor:
        """β (c - r), (B,)."""
        return self.beta * (self.chosen - self.rejected)

    @property
    def difference_per_token(self) -> Tensor:
        """Return c / L_c - r / L_r, (B,), L being the lengths.

        Raises:
            ValueError: the lengths are not known.
        """
        if self.lengths is None:
            raise ValueError("this loss_type needs chosen_len and rejected_len")
        chosen_len, rejected_len = (length.to(self.ref_chosen).clamp(min=1.0)
                                    for length in self.lengths)  # fmt: skip
        return self.chosen / chosen_len - self.rejected / rejected_len


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
    """Return -log σ(β c - δ) - log σ(-(β r - δ)), with a reward δ between both."""
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
    """Return :func:`cdpo` of differences sorted over the batch, separately for both models."""
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


def preference_loss(name: str, options: Any = None) -> Callable[[PreferenceBatch], Tensor]:
    """Return the registered loss of a name, with a check of its output.

    Args:
        name: name of a function of this module, or of a plugin.
        options: the loss's own options, such as :class:`rlox_llm.configs.DiscoPOPOptions`;
            ``None``: their defaults.

    Raises:
        ValueError: no loss of that name is registered.
        PluginError: the plugin's loss is broken.
    """
    function = registered_loss("rlox_preference_losses", name, options)

    def loss(batch: PreferenceBatch) -> Tensor:
        losses, shape = function(batch), batch.policy_chosen.shape
        if not isinstance(losses, Tensor) or losses.shape != shape:
            found = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise ValueError(
                f"loss_type '{name}' must return one number per pair, {tuple(shape)}, got {found}"
            )
        return losses

    return loss


@dataclass(frozen=True)
class PreferenceTerms:
    """Terms of a loss of preference pairs, as detached scalars."""

    chosen_reward: Tensor
    """Mean of β (log π - log π_ref) over the chosen completions."""
    rejected_reward: Tensor
    """The same over the rejected completions."""
    accuracy: Tensor
    """Share of pairs whose chosen completion has the higher reward."""
    margin: Tensor
    """Mean difference of the rewards."""


def dpo_loss(
    policy_chosen: Tensor,
    policy_rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    *,
    chosen_len: Tensor | None = None,
    rejected_len: Tensor | None = None,
    loss_type: str | Callable[[PreferenceBatch], Tensor] = "sigmoid",
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> tuple[Tensor, PreferenceTerms]:
    """Return the mean loss of preference pairs and its terms.

    Args:
        policy_chosen: (B,) log-probabilities of the chosen completions under the policy, summed
            over their tokens, in nats, with gradient.
        policy_rejected: (B,) the same for the rejected completions.
        ref_chosen: (B,) the same for the chosen completions under the reference.
        ref_rejected: (B,) the same for the rejected completions under the reference.
        chosen_len: (B,) token counts of the chosen completions, for ipo and sigmoid_norm.
        rejected_len: (B,) token counts of the rejected completions.
        loss_type: a name of :mod:`rlox_llm.losses.pairwise` or of a plugin, or a result of
            :func:`preference_loss`.
        beta: β, the strength of the pull to the reference.
        label_smoothing: ε, the probability that a label is wrong, below 0.5; exo_pair needs it.
        options: the loss's own options, such as :class:`rlox_llm.configs.DiscoPOPOptions`;
            ``None``: their defaults.

    Returns:
        The scalar loss and its :class:`PreferenceTerms`.

    Raises:
        ValueError: the name is unknown, shapes differ, a number is out of its range, or lengths
            are missing that the loss needs.
    """
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
    batch = PreferenceBatch(
        policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta, label_smoothing,
        None if chosen_len is None or rejected_len is None else (chosen_len, rejected_len),
    )  # fmt: skip
    loss_of = preference_loss(loss_type, options) if isinstance(loss_type, str) else loss_type
    losses = loss_of(batch)
    chosen, rejected = (beta * batch.chosen).detach(), (beta * batch.rejected).detach()
    return losses.mean(), PreferenceTerms(
        chosen_reward=chosen.mean(),
        rejected_reward=rejected.mean(),
        accuracy=(chosen > rejected).to(chosen.dtype).mean(),
        margin=(chosen - rejected).mean(),
    )
