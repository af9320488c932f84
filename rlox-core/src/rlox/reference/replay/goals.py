"""Goals within observations, and rewards for reaching them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.reference.replay.parsing import Array, convert

GoalFunction = Callable[[Array, Array, dict[str, Any]], npt.ArrayLike]
"""From (M, goal_dim) achieved goals, as many desired goals and an empty dict to (M,) results."""


@dataclass(frozen=True)
class Goals:
    """Where an achieved and a desired goal of some length begin in an observation."""

    length: int
    achieved: int
    desired: int
    compute_reward: GoalFunction | None
    compute_terminated: GoalFunction | None
    distance_threshold: float | None

    @property
    def achieved_part(self) -> slice:
        """The numbers of the achieved goal."""
        return slice(self.achieved, self.achieved + self.length)

    @property
    def desired_part(self) -> slice:
        """The numbers of the desired goal."""
        return slice(self.desired, self.desired + self.length)

    def check(self, obs_dim: int) -> None:
        """Raise what is out of range in an observation of this length."""
        last = obs_dim - self.length
        for name, place in {"achieved_goal": self.achieved, "desired_goal": self.desired}.items():
            if not 0 <= place <= last:
                raise ValueError(f"{name} must lie in [0, {last}], got {place}")
        if abs(self.achieved - self.desired) < self.length:
            raise ValueError(
                f"achieved_goal and desired_goal must not overlap, got goals of {self.length} "
                f"numbers at {self.achieved} and {self.desired}"
            )
        if (self.compute_reward is None) == (self.distance_threshold is None):
            got = "neither" if self.compute_reward is None else "both"
            raise ValueError(
                "the rewards of other goals take either compute_reward or distance_threshold, "
                f"got {got}"
            )
        if self.distance_threshold is not None and not self.distance_threshold >= 0:
            raise ValueError(
                f"distance_threshold must be at least 0, got {self.distance_threshold}"
            )

    def recompute(self, batch: dict[str, Array], rows: Array) -> None:
        """Set what rows of a batch are worth that have been given other goals."""
        achieved = batch["next_obs"][rows, self.achieved_part]
        desired = batch["next_obs"][rows, self.desired_part]
        shape = achieved.shape[:1]
        if self.compute_reward is not None:
            name, given = "the result of compute_reward", self.compute_reward(achieved, desired, {})
            rewards = convert(name, given, shape, batch["rewards"])
        else:
            # summed one after the other, which decides how the sum is rounded
            squares = (achieved.astype(np.float64) - desired.astype(np.float64)) ** 2
            distances = np.sqrt(np.cumsum(squares, axis=1)[:, -1])
            rewards = np.where(distances <= self.distance_threshold, 0.0, -1.0)
        if self.compute_terminated is not None:
            terminated = np.asarray(self.compute_terminated(achieved, desired, {}))
            if terminated.shape != shape:
                raise ValueError(
                    f"the result of compute_terminated must have shape {shape}, got "
                    f"{terminated.shape}"
                )
            batch["terminated"][rows] = terminated != 0
        batch["rewards"][rows] = rewards
