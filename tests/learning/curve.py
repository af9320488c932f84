"""Learning curve of a training, kept in memory."""

import math

from rlox.logging import LoggerCallback


class Curve(LoggerCallback):
    """Keeps env steps and the mean return of the last 100 finished episodes of each iteration."""

    def __init__(self):
        self.env_steps = []
        self.points = []

    def on_train_step(self, step, metrics):
        if math.isfinite(metrics.get("mean_reward", math.nan)):  # NaN before the first episode ends
            self.env_steps.append(step)
            self.points.append(round(metrics["mean_reward"], 2))

    def thinned(self, n_points=50):
        """Return about as many points, evenly spaced, the last one among them."""
        count = len(self.points)
        kept = range(count - 1, -1, -max(1, count // n_points))[::-1]
        return {
            "env_steps": [self.env_steps[i] for i in kept],
            "mean_return_of_last_100_episodes": [self.points[i] for i in kept],
        }
