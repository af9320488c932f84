"""Tasks of running: HalfCheetah, Swimmer, Hopper, Walker2d and Ant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rlox_simulators.mujoco.simulations import Simulations
from rlox_simulators.mujoco.tasks.noisy import Healthy, NoisyTask, between, clipped, squares

__all__ = ["Ant", "HalfCheetah", "Hopper", "Swimmer", "Walker2d"]

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Runner(NoisyTask):
    """Rewards running along x, and charges for controls."""

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.1
    exclude_current_positions_from_observation: bool = True
    skipped: ClassVar[int] = 1
    """Positions that are left out of observations."""

    @property
    def first(self) -> int:
        """Number of the first position that is observed."""
        return self.skipped if self.exclude_current_positions_from_observation else 0

    def position(self, simulations: Simulations) -> Array:
        x: Array = simulations.qpos[:, :1].copy()
        return x

    def observe(self, simulations: Simulations) -> Array:
        seen: Array = simulations.qpos_qvel[:, self.first :].copy()
        return seen

    def reward(self, simulations: Simulations, actions: Array, velocity: Array) -> Array:
        cost = self.ctrl_cost_weight * squares(actions)
        reward: Array = self.forward_reward_weight * velocity[:, 0] - cost
        return reward


@dataclass(frozen=True, kw_only=True)
class HalfCheetah(Runner):
    """A cheetah in two dimensions runs."""

    xml_file: str = "half_cheetah.xml"
    frame_skip: int = 5
    normal_velocities: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Swimmer(Runner):
    """Three links swim in two dimensions."""

    xml_file: str = "swimmer.xml"
    frame_skip: int = 4
    ctrl_cost_weight: float = 1e-4
    skipped: ClassVar[int] = 2


@dataclass(frozen=True, kw_only=True)
class Hopping(Healthy, Runner):
    """Ends where it falls, and rewards every step before."""

    frame_skip: int = 4
    ctrl_cost_weight: float = 1e-3
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    reset_noise_scale: float = 5e-3

    def observe(self, simulations: Simulations) -> Array:
        velocity = clipped(simulations.qvel, -10, 10)
        return np.concatenate((simulations.qpos[:, self.first :], velocity), axis=1)

    def reward(self, simulations: Simulations, actions: Array, velocity: Array) -> Array:
        forward = self.forward_reward_weight * velocity[:, 0]
        rewards = forward + self.is_healthy(simulations) * self.healthy_reward
        reward: Array = rewards - self.ctrl_cost_weight * squares(actions)
        return reward


@dataclass(frozen=True, kw_only=True)
class Hopper(Hopping):
    """A leg in two dimensions hops, and ends where it falls."""

    xml_file: str = "hopper.xml"
    healthy_state_range: Range = (-100.0, 100.0)
    healthy_z_range: Range = (0.7, float("inf"))
    healthy_angle_range: Range = (-0.2, 0.2)

    def healthy(self, simulations: Simulations) -> Mask:
        state = simulations.qpos_qvel[:, 2:]
        upright = between(self.healthy_z_range, simulations.qpos[:, 1])
        straight = between(self.healthy_angle_range, simulations.qpos[:, 2])
        bounded: Mask = np.logical_and.reduce(between(self.healthy_state_range, state), axis=1)
        return bounded & upright & straight


@dataclass(frozen=True, kw_only=True)
class Walker2d(Hopping):
    """Two legs in two dimensions walk, and end where they fall."""

    xml_file: str = "walker2d_v5.xml"
    healthy_z_range: Range = (0.8, 2.0)
    healthy_angle_range: Range = (-1.0, 1.0)

    def healthy(self, simulations: Simulations) -> Mask:
        upright = between(self.healthy_z_range, simulations.qpos[:, 1])
        return upright & between(self.healthy_angle_range, simulations.qpos[:, 2])


@dataclass(frozen=True, kw_only=True)
class Ant(Healthy, Runner):
    """Four legs in three dimensions walk; contact forces are seen and charged for."""

    xml_file: str = "ant.xml"
    frame_skip: int = 5
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    healthy_reward: float = 1.0
    main_body: int | str = 1
    terminate_when_unhealthy: bool = True
    healthy_z_range: Range = (0.2, 1.0)
    contact_force_range: Range = (-1.0, 1.0)
    include_cfrc_ext_in_observation: bool = True
    contact_forces: ClassVar[bool] = True
    normal_velocities: ClassVar[bool] = True
    skipped: ClassVar[int] = 2

    def position(self, simulations: Simulations) -> Array:
        xy: Array = simulations.body(self.main_body)[:, :2].copy()
        return xy

    def observe(self, simulations: Simulations) -> Array:
        if not self.include_cfrc_ext_in_observation:
            return Runner.observe(self, simulations)
        forces = simulations.once("forces", self.forces)[:, 1:].reshape(simulations.n, -1)
        return np.concatenate((simulations.qpos_qvel[:, self.first :], forces), axis=1)

    def forces(self, simulations: Simulations) -> Array:
        """(N, nbody, 6) contact forces within their range."""
        return clipped(simulations.cfrc_ext, *self.contact_force_range)

    def healthy(self, simulations: Simulations) -> Mask:
        finite: Mask = np.logical_and.reduce(np.isfinite(simulations.qpos_qvel), axis=1)
        low, high = self.healthy_z_range
        z = simulations.qpos[:, 2]
        return finite & (low <= z) & (z <= high)

    def reward(self, simulations: Simulations, actions: Array, velocity: Array) -> Array:
        forward = velocity[:, 0] * self.forward_reward_weight
        rewards = forward + self.is_healthy(simulations) * self.healthy_reward
        contact = self.contact_cost_weight * squares(simulations.once("forces", self.forces))
        reward: Array = rewards - (self.ctrl_cost_weight * squares(actions) + contact)
        return reward
