"""Tasks of an arm that reaches a target or pushes an object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rlox_simulators.mujoco.simulations import Simulations
from rlox_simulators.mujoco.tasks.noisy import NoisyTask, squares

__all__ = ["Pusher", "Reacher"]

Array = npt.NDArray[Any]


def lengths(vectors: Array) -> Array:
    """(N,) lengths of rows, one at a time: NumPy has another order for arrays."""
    return np.array([np.linalg.norm(vector) for vector in vectors])


@dataclass(frozen=True, kw_only=True)
class Reacher:
    """An arm of two links reaches a target."""

    xml_file: str = "reacher.xml"
    frame_skip: int = 2
    reward_dist_weight: float = 1.0
    reward_control_weight: float = 1.0
    contact_forces: ClassVar[bool] = False
    position = NoisyTask.position
    terminated = NoisyTask.terminated

    def _to_target(self, simulations: Simulations) -> Array:
        vector: Array = simulations.body("fingertip") - simulations.body("target")
        return vector

    def observe(self, simulations: Simulations) -> Array:
        angles = simulations.qpos[:, :2]
        seen = (
            np.cos(angles),
            np.sin(angles),
            simulations.qpos[:, 2:],
            simulations.qvel[:, :2],
            self._to_target(simulations)[:, :2],
        )
        return np.concatenate(seen, axis=1)

    def reward(self, simulations: Simulations, actions: Array, velocity: Array) -> Array:
        near = -lengths(self._to_target(simulations)) * self.reward_dist_weight
        reward: Array = near - squares(actions) * self.reward_control_weight
        return reward

    def begin(self, rng: np.random.Generator, qpos: Array, qvel: Array) -> None:
        qpos += rng.uniform(low=-0.1, high=0.1, size=len(qpos))
        goal = rng.uniform(low=-0.2, high=0.2, size=2)
        while np.linalg.norm(goal) >= 0.2:
            goal = rng.uniform(low=-0.2, high=0.2, size=2)
        qpos[-2:] = goal
        qvel += rng.uniform(low=-0.005, high=0.005, size=len(qvel))
        qvel[-2:] = 0


@dataclass(frozen=True, kw_only=True)
class Pusher:
    """An arm of seven joints pushes an object to a goal."""

    xml_file: str = "pusher_v5.xml"
    frame_skip: int = 5
    reward_near_weight: float = 0.5
    reward_dist_weight: float = 1.0
    reward_control_weight: float = 0.1
    contact_forces: ClassVar[bool] = False
    position = NoisyTask.position
    terminated = NoisyTask.terminated

    def observe(self, simulations: Simulations) -> Array:
        bodies = [simulations.body(name) for name in ("tips_arm", "object", "goal")]
        seen = (simulations.qpos[:, :7], simulations.qvel[:, :7], *bodies)
        return np.concatenate(seen, axis=1)

    def reward(self, simulations: Simulations, actions: Array, velocity: Array) -> Array:
        pushed = simulations.body("object")
        near = -lengths(pushed - simulations.body("tips_arm")) * self.reward_near_weight
        away = -lengths(pushed - simulations.body("goal")) * self.reward_dist_weight
        reward: Array = away - squares(actions) * self.reward_control_weight + near
        return reward

    def begin(self, rng: np.random.Generator, qpos: Array, qvel: Array) -> None:
        place = np.zeros(2)
        while np.linalg.norm(place) <= 0.17:
            place[0] = rng.uniform(low=-0.3, high=0.0)
            place[1] = rng.uniform(low=-0.2, high=0.2)
        qpos[-4:-2], qpos[-2:] = place, 0.0
        qvel += rng.uniform(low=-0.005, high=0.005, size=len(qvel))
        qvel[-4:] = 0
