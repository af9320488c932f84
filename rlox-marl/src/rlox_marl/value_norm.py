"""Normalised value targets: ValueNorm and PopArt.

Both keep debiased exponential moving averages of value targets and of their squares,

    m ← β m + (1 - β) mean(x),   s ← β s + (1 - β) mean(x²),   d ← β d + (1 - β),
    μ = m / d,   σ² = max(s / d - μ², 0.01),

and a critic learns (x - μ) / σ. Advantages need values in the rewards' own scale: denormalise
before them.

Source: Yu et al. 2022, https://arxiv.org/abs/2103.01955, and its code (``valuenorm.py``); PopArt:
van Hasselt et al. 2016, https://arxiv.org/abs/1602.07714.

Deviations from that code:

1. The averages are float64: s / d - μ² of float32 cancels where μ is far larger than σ.
2. Before the first update μ = 0 and σ = 1; there σ is 0.1, which scales the first values down.
"""

from __future__ import annotations

from typing import Any

import torch
from rlox.nn import orthogonal
from torch import Tensor, nn

__all__ = ["PopArt", "ValueNorm"]

LEAST_VARIANCE = 1e-2


class ValueNorm(nn.Module):
    """Running mean and deviation of value targets.

    Args:
        beta: how much of the averages an update keeps, in [0, 1).

    Raises:
        ValueError: ``beta`` is out of range.
    """

    mean_sum: Tensor
    square_sum: Tensor
    weight_sum: Tensor

    def __init__(self, beta: float = 0.99999) -> None:
        super().__init__()
        if not 0 <= beta < 1:
            raise ValueError(f"beta must lie in [0, 1), got {beta}")
        self.beta = beta
        for name in ("mean_sum", "square_sum", "weight_sum"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    @property
    def mean(self) -> Tensor:
        """() μ in float64."""
        return torch.where(self.weight_sum > 0, self.mean_sum / self._weight(), 0.0)

    @property
    def std(self) -> Tensor:
        """() σ in float64."""
        variance = self.square_sum / self._weight() - self.mean**2
        floored = variance.clamp(min=LEAST_VARIANCE)
        return torch.where(self.weight_sum > 0, floored, 1.0).sqrt()

    @torch.no_grad()
    def update(self, targets: Tensor) -> None:
        """Take in value targets of any shape, in the rewards' own scale.

        Args:
            targets: of active rows only.

        Raises:
            ValueError: there is none.
        """
        if not targets.numel():
            raise ValueError("update needs at least one value target, got none")
        numbers = targets.detach().to(self.mean_sum)
        keep, add = self.beta, 1 - self.beta
        self.mean_sum.mul_(keep).add_(numbers.mean() * add)
        self.square_sum.mul_(keep).add_(numbers.square().mean() * add)
        self.weight_sum.mul_(keep).add_(add)

    def normalize(self, values: Tensor) -> Tensor:
        """Return (values - μ) / σ in the dtype of ``values``."""
        return (values - self.mean.to(values)) / self.std.to(values)

    def denormalize(self, values: Tensor) -> Tensor:
        """Return σ · values + μ in the dtype of ``values``."""
        return values * self.std.to(values) + self.mean.to(values)

    def _weight(self) -> Tensor:
        return self.weight_sum.clamp(min=torch.finfo(torch.float64).tiny)


class PopArt(ValueNorm):
    """A value head whose denormalised outputs stay when the normalisation changes.

    An update from μ, σ to μ', σ' sets w ← σ w / σ' and b ← (σ b + μ - μ') / σ', so that
    σ' (w x + b) + μ' is what it was.

    Args:
        features: number of inputs F.
        beta: how much of the averages an update keeps, in [0, 1).
        generator: source of the weights, which are orthogonal; ``None`` uses torch's global one.
    """

    def __init__(
        self, features: int, beta: float = 0.99999, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(beta)
        self.head: Any = orthogonal(nn.Linear, features, 1, gain=1.0, generator=generator)

    def forward(self, features: Tensor) -> Tensor:
        """Return (B,) normalised values of (B, F) features."""
        values: Tensor = self.head(features)
        return values.squeeze(-1)

    @torch.no_grad()
    def update(self, targets: Tensor) -> None:
        """Take in value targets, and rescale the head; see :meth:`ValueNorm.update`.

        Raises:
            ValueError: there is no target.
        """
        mean, std = self.mean, self.std
        super().update(targets)
        scale, shift = std / self.std, (mean - self.mean) / self.std
        # in place, as optimisers hold these very tensors
        self.head.weight.mul_(scale.to(self.head.weight))
        self.head.bias.mul_(scale.to(self.head.bias)).add_(shift.to(self.head.bias))
