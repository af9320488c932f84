"""The loss of preference pairs, from log-probabilities of completions.

:mod:`rlox_llm.losses.pairwise` has the losses by name; a plugin adds others by the hook
``rlox_preference_losses``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rlox_llm.losses.batches import PreferenceBatch, registered_loss
from rlox_llm.losses.checks import require_shapes

__all__ = ["PreferenceTerms", "dpo_loss"]


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
    options: Any = None,
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
        loss_type: a name of :mod:`rlox_llm.losses.pairwise` or of a plugin.
        beta: β, how strongly the policy is held to the reference.
        label_smoothing: ε, the probability that a label is wrong, below 0.5; exo_pair needs it.
        options: the loss's own options, such as :class:`rlox_llm.loss_options.DiscoPOPOptions`;
            ``None`` takes their defaults.

    Returns:
        The scalar loss and its :class:`PreferenceTerms`.

    Raises:
        ValueError: the name is unknown, shapes differ, a number is out of its range, or lengths
            that the loss needs are missing.
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
    losses = registered_loss("rlox_preference_losses", loss_type, batch, options)
    if not isinstance(losses, Tensor) or losses.shape != policy_chosen.shape:
        found = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(
            f"loss_type '{loss_type}' must return one number per pair, {tuple(policy_chosen.shape)}"
            f", got {found}"
        )
    chosen, rejected = (beta * batch.chosen).detach(), (beta * batch.rejected).detach()
    return losses.mean(), PreferenceTerms(
        chosen_reward=chosen.mean(),
        rejected_reward=rejected.mean(),
        accuracy=(chosen > rejected).to(chosen.dtype).mean(),
        margin=(chosen - rejected).mean(),
    )
