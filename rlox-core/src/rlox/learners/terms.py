"""What gradient steps report, and from many of them to the metrics of one iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["PolicyTerms", "QTerms", "mean_terms"]


@dataclass(frozen=True)
class QTerms:
    """Of a gradient step of action values; scalars without gradient."""

    q_loss: Tensor
    q_value: Tensor
    """Mean Q(s, a) of the batch."""


@dataclass(frozen=True)
class PolicyTerms:
    """Of a gradient step of a policy that goes up action values; a scalar without gradient."""

    policy_loss: Tensor


def mean_terms(kind: type[Any], terms: Sequence[Any]) -> dict[str, float]:
    """Return the means over gradient steps, in one transfer from the device.

    Args:
        kind: a dataclass of scalar tensors without gradient.
        terms: instances of it, one a gradient step; of none the means are NaN.
    """
    names = [field.name for field in fields(kind)]
    if not terms:
        return dict.fromkeys(names, float("nan"))
    means = torch.stack([torch.stack(list(vars(t).values())) for t in terms]).mean(0)
    return dict(zip(names, np.asarray(means.cpu(), np.float64).tolist(), strict=True))
