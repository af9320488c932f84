"""What gradient steps report; scalars without gradient."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["PolicyTerms", "QTerms"]


@dataclass(frozen=True)
class QTerms:
    """Of a gradient step of action values."""

    q_loss: Tensor
    q_value: Tensor
    """Mean Q(s, a) of the batch."""


@dataclass(frozen=True)
class PolicyTerms:
    """Of a gradient step of a policy."""

    policy_loss: Tensor
