"""Objectives of the offline algorithms as functions of tensors.

All are to be minimised. B is the batch size, K the number of critics.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def bc_loss(policy_actions: Tensor, actions: Tensor) -> Tensor:
    """Return mean (π(s) - a)² of actions (B, act_dim), over batch and dimensions.

    Source:
        Pomerleau 1989, "ALVINN"; the regulariser of Fujimoto and Gu 2021, eq. 3.
    """
    return (policy_actions - actions).square().mean()


def critic_loss(q_values: Tensor, targets: Tensor) -> Tensor:
    """Return Σ over the critics of mean (Q - y)², for values (K, B) and targets (B,)."""
    return (q_values - targets).square().mean(-1).sum()


def td3_bc_actor_loss(
    q_values: Tensor, policy_actions: Tensor, actions: Tensor, alpha: float
) -> Tensor:
    """Return -λ mean Q(s, π(s)) + mean (π(s) - a)², with λ = α / mean abs Q(s, π(s)).

    λ has no gradient. The values Q(s, π(s)) are (B,), the actions (B, act_dim).

    Source:
        Fujimoto and Gu 2021, "A minimalist approach to offline reinforcement learning", eq. 4, 5.
    """
    weight = alpha / q_values.detach().abs().mean()
    return -weight * q_values.mean() + bc_loss(policy_actions, actions)


def expectile_loss(differences: Tensor, expectile: float) -> Tensor:
    """Return mean abs(τ - 1(u < 0)) u² for differences u = target - estimate (B,).

    An expectile τ of ½ gives half the squared error.

    Source:
        Kostrikov et al. 2022, "Offline reinforcement learning with implicit Q-learning", eq. 5.
    """
    weights = (expectile - (differences < 0).to(differences.dtype)).abs()
    return (weights * differences.square()).mean()


def advantage_weights(advantages: Tensor, temperature: float, max_weight: float) -> Tensor:
    """Return the weights min(exp(β A), max_weight) of log-likelihoods, for advantages A (B,).

    Source:
        Kostrikov et al. 2022, eq. 7.
    """
    return torch.exp(temperature * advantages).clamp(max=max_weight)


def cql_penalty(
    random_q: Tensor,
    policy_q: Tensor,
    policy_log_probs: Tensor,
    data_q: Tensor,
    act_dim: int,
    lower_bounds: Tensor | None = None,
) -> Tensor:
    """Return per critic the mean of log Σ_a exp Q(s, a) - Q(s, a_data), by importance sampling.

    The sum over actions is estimated from uniform actions, with log-density act_dim · log ½, and
    from actions of a policy; each term is divided by its density.

    Args:
        random_q: (K, N, B) values of N uniform actions in [-1, 1].
        policy_q: (K, M, B) values of M actions of the policy.
        policy_log_probs: (M, B) their log-probabilities, without gradient.
        data_q: (K, B) values of the dataset's actions.
        act_dim: size of an action.
        lower_bounds: (B,) minimum for the values of the policy's actions; raised values have no
            gradient; ``None`` sets no minimum.

    Returns:
        (K,).

    Source:
        Kumar et al. 2020, "Conservative Q-learning for offline reinforcement learning", eq. 4 and
        appendix F. As in the authors' code, there is no division by the number of samples, which
        shifts the penalty by a constant. The bounds: Nakamoto et al. 2023, "Cal-QL: calibrated
        offline RL pre-training for efficient online fine-tuning", eq. 5.1.
    """
    if lower_bounds is not None:
        policy_q = torch.maximum(policy_q, lower_bounds)
    weighted = torch.cat((random_q - act_dim * math.log(0.5), policy_q - policy_log_probs), 1)
    return (torch.logsumexp(weighted, 1) - data_q).mean(-1)
