"""Sequence weights of VESPO, a soft replacement of clipping.

With w = Π_t π(t) / π_old(t) the importance weight of a whole completion and k, λ chosen by the sign
of its advantage,

    φ(w) = w^k exp(λ (1 - w))

which is 1 at w = 1 and falls to 0 on both sides far from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["VespoWeights"]

LOWEST_LOG_WEIGHT = -18.420680743952367
"""log 1e-8, below which log w is cut off."""

HIGHEST_LOG_WEIGHT = 20.0
"""Above which log w, and each token's log-ratio in it, is cut off."""


@dataclass(frozen=True)
class VespoWeights:
    """Exponents and rates of φ, for advantages that are positive or 0 and for negative ones.

    The defaults are TRL's.
    """

    k_pos: float = 2.0
    lambda_pos: float = 3.0
    k_neg: float = 3.0
    lambda_neg: float = 2.0

    @torch.no_grad()
    def __call__(self, advantages: Tensor, log_ratios: Tensor, mask: Tensor) -> Tensor:
        """Return φ (B, 1), without gradient.

        Args:
            advantages: (B, 1)
            log_ratios: (B, T) log π - log π_old of each token.
            mask: (B, T) 1 at the tokens of the completion.
        """
        bounded = log_ratios.clamp(-HIGHEST_LOG_WEIGHT, HIGHEST_LOG_WEIGHT)
        log_w = (bounded * mask).sum(1, keepdim=True)
        log_w = log_w.clamp(LOWEST_LOG_WEIGHT, HIGHEST_LOG_WEIGHT)
        positive = advantages >= 0
        numbers = log_w.new_tensor([self.k_pos, self.k_neg, self.lambda_pos, self.lambda_neg])
        k = torch.where(positive, numbers[0], numbers[1])
        rate = torch.where(positive, numbers[2], numbers[3]).clamp(min=1e-4)
        phi = (k * log_w + rate * (1 - log_w.exp())).exp()
        return phi.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
