"""The targets of Q-learning and its relatives, as pure functions of tensors.

Every algorithm here regresses Q(s, a), or a return distribution with that mean, on

    y = r + γ V̂(s')

and they differ in V̂. ``discounts`` holds γ (γᵏ after k steps), and 0 where the task ended, so
values are bootstrapped after a truncation but not after a termination.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # the field's name for it
from torch import Tensor


def td_targets(rewards: Tensor, discounts: Tensor, next_values: Tensor) -> Tensor:
    """Return y = r + γ V̂(s'), all (B,)."""
    return torch.addcmul(rewards, discounts, next_values)


def at_actions(outputs: Tensor, actions: Tensor) -> Tensor:
    """Return a network's outputs for one action per observation.

    With Q' as ``outputs``, the argmax of Q' as ``actions`` gives max over a of Q' (Mnih et al.
    2015, algorithm 1), and the argmax of Q gives the value of double Q-learning (van Hasselt et al.
    2016, eq. 4).

    Args:
        outputs: (B, A), or (B, A, n) for distributions.
        actions: (B, 1) int64.

    Returns:
        (B,), or (B, n).
    """
    index = actions
    if outputs.dim() == 3:
        index = actions.unsqueeze(-1).expand(-1, -1, outputs.shape[-1])
    return outputs.gather(1, index).squeeze(1)


def categorical_projection(
    next_probs: Tensor, rewards: Tensor, discounts: Tensor, support: Tensor
) -> Tensor:
    """Return the distribution of r + γ Z(s'), projected onto the atoms of ``support``.

        m_i = Σ over j of [1 - abs(clip(r + γ z_j) - z_i) / Δz] clipped to [0, 1], times p_j

    Args:
        next_probs: (B, n) probabilities p_j of the atoms in s'.
        rewards: (B,)
        discounts: (B,)
        support: (n,) atoms z in ascending steps of Δz, from the least return to the greatest;
            r + γ z_j is clipped to this range.

    Returns:
        (B, n) probabilities m_i.

    Source:
        Bellemare et al. 2017, "A distributional perspective on reinforcement learning", eq. 7.
    """
    moved = td_targets(rewards.unsqueeze(-1), discounts.unsqueeze(-1), support)
    moved = moved.clamp(support[0], support[-1])
    spacing = (support[-1] - support[0]) / (len(support) - 1)
    distances = (moved.unsqueeze(1) - support.unsqueeze(-1)).abs_()  # (B, i, j)
    shares = distances.div_(spacing).neg_().add_(1).clamp_(min=0)
    return torch.bmm(shares, next_probs.unsqueeze(-1)).squeeze(-1)


def quantile_huber_loss(quantiles: Tensor, targets: Tensor) -> Tensor:
    """Return Σ over i of mean over j of abs(τ_i - 1{u < 0}) L(u), with u = target_j - quantile_i.

    L is the Huber loss, ½ u² up to 1 and abs(u) - ½ beyond; τ_i = (i - ½)/n.

    Args:
        quantiles: (B, n) estimates θ_i.
        targets: (B, m) r + γ θ'_j.

    Returns:
        (B,)

    Source:
        Dabney et al. 2018, "Distributional reinforcement learning with quantile regression", eq. 9
        and 10 and algorithm 1, with κ = 1.
    """
    n, device = quantiles.shape[-1], quantiles.device
    midpoints = (torch.arange(n, device=device) + 0.5).unsqueeze(-1) / n
    estimates = quantiles.unsqueeze(-1).expand(-1, -1, targets.shape[-1])
    goals = targets.unsqueeze(-2).expand_as(estimates)
    weights = torch.where(goals < estimates, 1 - midpoints, midpoints)  # (B, i, j)
    return (weights * F.huber_loss(estimates, goals, reduction="none")).mean(-1).sum(-1)


def clipped_double_values(next_q: Tensor) -> Tensor:
    """Return V̂(s') = min over k of Q'_k(s', a').

    Args:
        next_q: (K, B) values of K target critics for the same actions.

    Returns:
        (B,)

    Source:
        Fujimoto et al. 2018, "Addressing function approximation error", eq. 10.
    """
    return next_q.amin(0)


def soft_values(next_q: Tensor, log_probs: Tensor, alpha: Tensor) -> Tensor:
    """Return V̂(s') = min over k of Q'_k(s', a') - α log π(a' | s'), for a' ~ π.

    Args:
        next_q: (K, B) values of K target critics; (K, B, A) for every action.
        log_probs: (B,) or (B, A) log π(a' | s').
        alpha: () temperature.

    Returns:
        (B,) or (B, A).

    Source:
        Haarnoja et al. 2018b, "Soft actor-critic algorithms and applications", eq. 3 and sec. 5.
    """
    return next_q.amin(0) - alpha * log_probs


def expected_soft_values(next_q: Tensor, log_probs: Tensor, alpha: Tensor) -> Tensor:
    """Return V̂(s') = Σ over a of π(a | s') (min over k of Q'_k(s', a) - α log π(a | s')).

    Args:
        next_q: (K, B, A) values of K target critics.
        log_probs: (B, A) log π(a | s').
        alpha: () temperature.

    Returns:
        (B,)

    Source:
        Christodoulou 2019, "Soft actor-critic for discrete action settings", eq. 10.
    """
    return (log_probs.exp() * soft_values(next_q, log_probs, alpha)).sum(-1)


def smoothed_actions(actions: Tensor, noise: Tensor, clip: float) -> Tensor:
    """Return a' = clip(μ'(s') + clip(ε, -c, c), -1, 1).

    Args:
        actions: (B, act_dim) actions μ'(s') in [-1, 1].
        noise: (B, act_dim) noise ε.
        clip: bound c of the noise.

    Source:
        Fujimoto et al. 2018, eq. 14 and 15; the bounds of the action space: sfujim/TD3.
    """
    return (actions + noise.clamp(-clip, clip)).clamp_(-1, 1)
