"""Gradient clipping rules for optimisers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

__all__ = ["AdaptiveClip", "Clip", "require_one_bound"]

Clip = Callable[[Sequence[nn.Parameter]], None]
"""Scales the gradients of a module's trainable parameters in place."""


def require_one_bound(max_grad_norm: float | None, clip: Clip | None) -> None:
    """Check that an optimiser's gradients have one bound at most.

    Raises:
        ValueError: there are both a norm and a rule.
    """
    if clip is not None and max_grad_norm is not None:
        raise ValueError(
            f"max_grad_norm={max_grad_norm} and clip= both bound the gradient; leave one out"
        )


class AdaptiveClip:
    """Bounds each parameter's gradient by a share of the parameter's own norm (AGC).

        g ← g min(1, c max(‖w‖, ε) / ‖g‖)

    Args:
        share: c > 0, 0.3 in DreamerV3.
        floor: ε, the least norm that a parameter counts with.

    Raises:
        ValueError: ``share`` or ``floor`` is not positive.

    Source:
        Brock et al. 2021, "High-performance large-scale image recognition without normalization",
        eq. 3. Deviation: one norm for each parameter, not for each of its rows, as in DreamerV3.
    """

    def __init__(self, share: float = 0.3, floor: float = 1e-3) -> None:
        for name, value in (("share", share), ("floor", floor)):
            if not value > 0:
                raise ValueError(f"{name} must be above 0, got {value}")
        self.share = share
        self.floor = floor

    @torch.no_grad()
    def __call__(self, parameters: Sequence[nn.Parameter]) -> None:
        """Scale the gradients in place."""
        moved = [p for p in parameters if p.grad is not None and p.numel()]
        gradients = [p.grad for p in moved if p.grad is not None]
        # one call for all norms: a network has a hundred parameters, most of them small
        norms = torch.stack(torch._foreach_norm(gradients))
        bounds = (
            torch.stack(torch._foreach_norm(list[Tensor](moved))).clamp(min=self.floor) * self.share
        )
        shares = torch.clamp(bounds / norms.clamp(min=1e-12), max=1.0)
        torch._foreach_mul_(gradients, list(shares.unbind()))
