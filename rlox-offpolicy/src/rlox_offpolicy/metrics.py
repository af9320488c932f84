"""Metrics of one iteration; NaN if there was no gradient step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["DQNMetrics", "SACMetrics", "TD3Metrics", "all_metrics"]


@dataclass(frozen=True)
class _ReplayMetrics:
    """What all have in common."""

    mean_reward: float
    """Mean return of the last 100 finished episodes; NaN before the first."""
    mean_episode_length: float
    """Mean length of the same episodes in env steps."""
    episodes: float
    """Number of episodes finished so far."""
    q_loss: float
    q_value: float
    """Mean Q(s, a) of the batches."""


@dataclass(frozen=True)
class DQNMetrics(_ReplayMetrics):
    """Of DQN."""

    epsilon: float
    """Probability of a uniform action."""
    learning_rate: float
    added: Mapping[str, float] = field(default_factory=dict)
    """Means of the user's own losses."""


@dataclass(frozen=True)
class SACMetrics(_ReplayMetrics):
    """Of SAC and discrete SAC."""

    policy_loss: float
    entropy: float
    """In nats: the mean of -log π(a|s), of continuous actions in [-1, 1]."""
    alpha: float
    """Temperature."""
    learning_rate: float
    added: Mapping[str, float] = field(default_factory=dict)
    """Means of the user's own losses."""


@dataclass(frozen=True)
class TD3Metrics(_ReplayMetrics):
    """Of TD3 and DDPG."""

    policy_loss: float
    learning_rate: float
    added: Mapping[str, float] = field(default_factory=dict)
    """Means of the user's own losses."""


def all_metrics(algorithm: Any, *terms: Mapping[str, float]) -> dict[str, Any]:
    """Return the metrics of an algorithm's episodes, gradient steps and added losses.

    Args:
        algorithm: has a ``replay``, ``schedules``, ``added_losses`` and a ``clock``.
        terms: means of what the gradient steps reported.
    """
    now = (algorithm.clock.env_steps, algorithm.clock.target_env_steps)
    return {
        **algorithm.replay.collector.statistics.metrics(),
        "learning_rate": algorithm.schedules.value("learning_rate", *now),
        "added": algorithm.added_losses.means(),
        **{name: value for means in terms for name, value in means.items()},
    }
