"""Learning curve of a training, kept in memory."""

from __future__ import annotations

import math
from typing import Any

from rlox.logging import LoggerCallback


class Curve(LoggerCallback):
    """Keeps env steps and the mean return of the last 100 finished episodes of each iteration."""

    def __init__(self) -> None:
        self.env_steps: list[int] = []
        self.points: list[float] = []

    def on_train_step(self, step: int, metrics: Any) -> None:
        if math.isfinite(metrics.get("mean_reward", math.nan)):  # NaN before the first episode ends
            self.env_steps.append(step)
            self.points.append(round(metrics["mean_reward"], 2))

    def thinned(self, n_points: int = 50) -> dict[str, list[Any]]:
        """Return about as many points, evenly spaced, the last one among them."""
        count = len(self.points)
        kept = range(count - 1, -1, -max(1, count // n_points))[::-1]
        return {
            "env_steps": [self.env_steps[i] for i in kept],
            "mean_return_of_last_100_episodes": [self.points[i] for i in kept],
        }
