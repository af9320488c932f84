"""Metrics of DreamerV3."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DreamerV3Metrics"]


@dataclass(frozen=True)
class DreamerV3Metrics:
    """What one iteration reports; losses are means over its updates, NaN without any."""

    mean_reward: float
    """Mean return of the last 100 finished episodes; NaN before the first."""
    mean_episode_length: float
    """Mean length of the same episodes in env steps."""
    episodes: float
    """Number of episodes finished so far."""
    model_loss: float
    """Sum of the world model's losses, weighted."""
    reconstruction_loss: float
    reward_loss: float
    continue_loss: float
    dynamics_kl: float
    """Dynamics loss in nats, at least ``free_nats``."""
    representation_kl: float
    """Representation loss in nats, at least ``free_nats``."""
    policy_loss: float
    value_loss: float
    """On imagined returns."""
    replay_value_loss: float
    """On replayed rewards."""
    entropy: float
    """Of the policy in imagination, in nats."""
    imagined_return: float
    """Mean λ-return of imagination."""
    return_scale: float
    """S, which advantages are divided by."""
    learning_rate: float
