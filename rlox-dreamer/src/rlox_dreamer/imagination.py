"""Imagined trajectories, and what actor and critic learn from them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlox_dreamer.heads import PolicyHead
from rlox_dreamer.losses import lambda_returns
from rlox_dreamer.rssm import RSSM, Latent

__all__ = ["Imagined", "imagine", "policy_loss", "replay_returns"]


@dataclass(frozen=True)
class Imagined:
    """H + 1 steps of N trajectories, without gradient."""

    features: Tensor
    """(H + 1, N, F)."""
    actions: Tensor
    """(H + 1, N, A) that the policy took there."""


@torch.no_grad()
def imagine(
    rssm: RSSM, policy: PolicyHead, start: Latent, horizon: int, generator: torch.Generator
) -> Imagined:
    """Let the policy act in the model, without gradient into it.

    Args:
        rssm: the model's dynamics.
        policy: acts on features.
        start: N states.
        horizon: steps H.
        generator: source of actions and states.
    """
    count, device = len(start.deter), start.deter.device
    draws = policy.noise((horizon + 1, count), generator).to(device)
    noise = torch.rand((horizon, count, rssm.stoch), generator=generator).to(device)
    latent, features, actions = start, [], []
    shares = rssm.shares()
    for t in range(horizon + 1):
        seen = latent.features()
        action = policy.sample(policy(seen), draws[t])
        features.append(seen)
        actions.append(action)
        if t < horizon:
            latent = rssm.imagine_step(latent, action, noise[t], shares)
    return Imagined(torch.stack(features), torch.stack(actions))


def policy_loss(
    log_probs: Tensor, entropy: Tensor, advantages: Tensor, weights: Tensor, entropy_scale: float
) -> Tensor:
    """Return the REINFORCE loss (H, N), for discrete and continuous actions alike.

        -w_t (A_t / S log π(a_t|s_t) + η H[π(·|s_t)])

    Args:
        log_probs: (H, N).
        entropy: (H, N) in nats.
        advantages: (H, N) already divided by the return scale S.
        weights: (H, N) probability that the trajectory still goes on, discounted.
        entropy_scale: η.

    Source:
        Hafner et al. 2025, eq. 6.
    """
    gain = log_probs * advantages.detach() + entropy_scale * entropy
    return -weights.detach() * gain


def replay_returns(
    rewards: Tensor,
    is_terminal: Tensor,
    is_last: Tensor,
    bootstraps: Tensor,
    gamma: float,
    lam: float,
) -> Tensor:
    """Return λ-returns (T - 1, B) of replayed rewards.

    Args:
        rewards: (T, B), paid on arriving at a step.
        is_terminal: (T, B) bool, whether the task ended there.
        is_last: (T, B) bool, whether the episode ended there.
        bootstraps: (T, B) first imagined return from each state.
        gamma: discount γ.
        lam: λ.

    Source:
        Hafner et al. 2025, methods, "Critic learning".
    """
    discounts = gamma * (~is_terminal).to(rewards.dtype)
    return lambda_returns(rewards, discounts, bootstraps, lam, is_last)
