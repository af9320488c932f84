"""Target networks: Polyak averaging (soft updates)."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["polyak_update"]


@torch.no_grad()
def polyak_update(source: nn.Module, target: nn.Module, tau: float) -> None:
    """Move the target's parameters towards the source's: θ' ← (1 - τ) θ' + τ θ.

    Args:
        source: the network that learns.
        target: its target network; its buffers become the source's.
        tau: τ in [0, 1]; 1 copies.

    Raises:
        ValueError: ``tau`` is out of range.

    Source:
        Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", algorithm 1.
    """
    if not 0.0 <= tau <= 1.0:
        raise ValueError(f"tau must lie in [0, 1], got {tau}")
    for learnt, averaged in zip(source.parameters(), target.parameters(), strict=True):
        averaged.lerp_(learnt, tau)
    for buffer, copy in zip(source.buffers(), target.buffers(), strict=True):
        copy.copy_(buffer)
