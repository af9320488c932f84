"""Batches that registered losses get, and the results that they return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlox.errors import UnknownNameError
from rlox.registry.table import get_registry
from torch import Tensor

__all__ = ["PolicyBatch", "PreferenceBatch", "TokenLosses", "registered_loss"]


@dataclass(frozen=True)
class PolicyBatch:
    """What a loss of the hook ``rlox_policy_losses`` gets: B sampled completions of up to T tokens.

    The KL to the reference, the mask and the average are not its concern.
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
    """How far a ratio may fall below 1."""
    epsilon_high: float
    """How far it may rise above 1."""
    delta: float | None
    """Largest ratio at negative advantages too; ``None``: no bound."""


@dataclass(frozen=True)
class TokenLosses:
    """What a loss of the hook ``rlox_policy_losses`` returns."""

    values: Tensor
    """(B, T), or what broadcasts to it, the loss of each token."""
    clipped: Tensor | None = None
    """(B, T) or (B, 1) whether the loss clips a ratio, for the metric; ``None``: it clips none."""
    average: str = "tokens"
    """``"tokens"``: over all tokens of the batch; ``"completions"``: over the tokens of each
    completion, then over completions; ``"sums"``: of the sums over each completion; ``"length"``:
    of these sums, divided by the greatest length."""


@dataclass(frozen=True)
class PreferenceBatch:
    """What a loss of the hook ``rlox_preference_losses`` gets: B pairs of completions.

    It returns one number per pair, (B,).
    """

    policy_chosen: Tensor
    """(B,) log-probabilities of the chosen completions under the policy, with gradient, in nats."""
    policy_rejected: Tensor
    """(B,) the same of the rejected ones."""
    ref_chosen: Tensor
    """(B,) the same of the chosen ones under the reference."""
    ref_rejected: Tensor
    """(B,) the same of the rejected ones under the reference."""
    beta: float
    """β, how strongly the policy is held to the reference."""
    label_smoothing: float
    """ε, the probability that a label is wrong."""
    lengths: tuple[Tensor, Tensor] | None = None
    """Tokens (B,) of the chosen and of the rejected completions; training always has them."""

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


def registered_loss(hook: str, name: str, batch: Any, options: Any = None) -> Any:
    """Return what the loss ``name`` makes of a batch.

    Args:
        hook: ``"rlox_policy_losses"`` or ``"rlox_preference_losses"``.
        name: its registered name.
        batch: a :class:`PolicyBatch` or a :class:`PreferenceBatch`.
        options: an instance of the model of its own options; ``None`` takes their defaults.

    Raises:
        ValueError: no loss of that name is registered.
        PluginError: it is broken.
    """
    try:
        return get_registry().get(hook, name).build(batch, options=options)
    except UnknownNameError as error:
        raise ValueError(str(error)) from None
