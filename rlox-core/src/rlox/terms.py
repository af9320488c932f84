"""From the terms of many gradient steps to the metrics of one iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch

__all__ = ["mean_terms"]


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
