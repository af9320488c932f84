"""The targets of Q-learning and its relatives, as pure functions of tensors without gradient.

Every algorithm here regresses Q(s, a) on

    y = r + γ V̂(s')

and they differ in V̂. ``discounts`` holds γ (γᵏ after k steps), and 0 where the task ended, so that
no value is taken beyond a termination while one is beyond a truncation.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "clipped_double_values",
    "double_values",
    "max_values",
    "smoothed_actions",
    "soft_values",
    "td_targets",
]


def td_targets(rewards: Tensor, discounts: Tensor, next_values: Tensor) -> Tensor:
    """Return y = r + γ V̂(s'), all (B,)."""
    return torch.addcmul(rewards, discounts, next_values)


def max_values(next_q: Tensor) -> Tensor:
    """Return V̂(s') = max over a of Q'(s', a).

    Args:
        next_q: (B, A) of the target network.

    Returns:
        (B,)

    Source:
        Mnih et al. 2015, algorithm 1.
    """
    return next_q.amax(-1)


def double_values(online_q: Tensor, next_q: Tensor) -> Tensor:
    """Return V̂(s') = Q'(s', argmax over a of Q(s', a)).

    Args:
        online_q: (B, A) of the learning network, which chooses.
        next_q: (B, A) of the target network, which judges.

    Returns:
        (B,)

    Source:
        van Hasselt et al. 2016, "Deep reinforcement learning with double Q-learning", eq. 4.
    """
    return next_q.gather(-1, online_q.argmax(-1, keepdim=True)).squeeze(-1)


def clipped_double_values(next_q: Tensor) -> Tensor:
    """Return V̂(s') = min over k of Q'_k(s', a').

    Args:
        next_q: (K, B) of K target critics, at the same actions.

    Returns:
        (B,)

    Source:
        Fujimoto et al. 2018, "Addressing function approximation error", eq. 10.
    """
    return next_q.amin(0)


def soft_values(next_q: Tensor, log_probs: Tensor, alpha: Tensor) -> Tensor:
    """Return V̂(s') = min over k of Q'_k(s', a') - α log π(a' | s'), for a' ~ π.

    Args:
        next_q: (K, B) of K target critics.
        log_probs: (B,) log π(a' | s').
        alpha: () temperature.

    Returns:
        (B,)

    Source:
        Haarnoja et al. 2018b, "Soft actor-critic algorithms and applications", eq. 3 and sec. 5.
    """
    return next_q.amin(0) - alpha * log_probs


def smoothed_actions(actions: Tensor, noise: Tensor, clip: float) -> Tensor:
    """Return a' = clip(μ'(s') + clip(ε, -c, c), -1, 1).

    Args:
        actions: (B, act_dim) in [-1, 1], μ'(s').
        noise: (B, act_dim) ε.
        clip: c.

    Source:
        Fujimoto et al. 2018, eq. 14 and 15; the bounds of the action space: sfujim/TD3.
    """
    return (actions + noise.clamp(-clip, clip)).clamp_(-1, 1)
