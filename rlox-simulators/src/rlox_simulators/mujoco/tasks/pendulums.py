"""Tasks of balancing pendulums on a cart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rlox_simulators.mujoco.simulations import Simulations
from rlox_simulators.mujoco.tasks.noisy import NoisyTask

__all__ = ["InvertedDoublePendulum", "InvertedPendulum"]

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class InvertedPendulum(NoisyTask):
    """A pole on a cart."""

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    reset_noise_scale: float = 0.01

    def observe(self, simulations: Simulations) -> Array:
        return np.concatenate((simulations.qpos, simulations.qvel), axis=1)

    def reward(self, simulations: Simulations, actions: Array, velocity: Array) -> Array:
        return (~self.terminated(simulations)).astype(np.float64)

    def terminated(self, simulations: Simulations) -> Mask:
        fallen: Mask = np.abs(simulations.qpos[:, 1]) > 0.2
        return fallen | ~np.isfinite(self.observe(simulations)).all(axis=1)


@dataclass(frozen=True, kw_only=True)
class InvertedDoublePendulum(NoisyTask):
    """Two poles, one on the other, on a cart."""

    xml_file: str = "inverted_double_pendulum.xml"
    frame_skip: int = 5
    healthy_reward: float = 10.0
    normal_velocities: ClassVar[bool] = True

    def observe(self, simulations: Simulations) -> Array:
        angles = simulations.qpos[:, 1:]
        seen = (
            simulations.qpos[:, :1],
            np.sin(angles),
            np.cos(angles),
            np.clip(simulations.qvel, -10, 10),
            np.clip(simulations.field("qfrc_constraint"), -10, 10)[:, :1],
        )
        return np.concatenate(seen, axis=1)

    def reward(self, simulations: Simulations, actions: Array, velocity: Array) -> Array:
        x, _, y = simulations.field("site_xpos")[:, 0].T
        v1, v2 = simulations.qvel[:, 1:3].T
        distance = 0.01 * x**2 + (y - 2) ** 2
        speed = 1e-3 * v1**2 + 5e-3 * v2**2
        reward: Array = self.healthy_reward * ~self.terminated(simulations) - distance - speed
        return reward

    def terminated(self, simulations: Simulations) -> Mask:
        low: Mask = simulations.field("site_xpos")[:, 0, 2] <= 1
        return low
