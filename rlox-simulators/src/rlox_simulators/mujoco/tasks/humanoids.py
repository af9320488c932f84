"""Tasks of a humanoid: running and standing up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rlox_simulators.mujoco.simulations import Simulations
from rlox_simulators.mujoco.tasks.noisy import Healthy, NoisyTask, between, squares

__all__ = ["Humanoid", "HumanoidStandup"]

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Person(NoisyTask):
    """What is seen of the humanoid."""

    frame_skip: int = 5
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 1e-2
    exclude_current_positions_from_observation: bool = True
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True
    include_cfrc_ext_in_observation: bool = True
    contact_forces: ClassVar[bool] = True

    def observe(self, simulations: Simulations) -> Array:
        skipped = 2 if self.exclude_current_positions_from_observation else 0
        seen = [simulations.qpos[:, skipped:], simulations.qvel]
        if self.include_cinert_in_observation:
            seen.append(simulations.field("cinert")[:, 1:])
        if self.include_cvel_in_observation:
            seen.append(simulations.field("cvel")[:, 1:])
        if self.include_qfrc_actuator_in_observation:
            seen.append(simulations.field("qfrc_actuator")[:, 6:])
        if self.include_cfrc_ext_in_observation:
            seen.append(simulations.cfrc_ext[:, 1:])
        return np.concatenate([part.reshape(simulations.n, -1) for part in seen], axis=1)


@dataclass(frozen=True, kw_only=True)
class Humanoid(Healthy, Person):
    """A humanoid walks, and ends where it falls."""

    xml_file: str = "humanoid.xml"
    forward_reward_weight: float = 1.25
    contact_cost_weight: float = 5e-7
    contact_cost_range: Range = (-np.inf, 10.0)
    healthy_reward: float = 5.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: Range = (1.0, 2.0)

    def position(self, simulations: Simulations) -> Array:
        masses = simulations.model.body_mass
        moments = np.einsum("b,nbj->nj", masses, simulations.field("xipos"))
        centre: Array = moments / masses.sum()
        return centre[:, :2]

    def healthy(self, simulations: Simulations) -> Mask:
        return between(self.healthy_z_range, simulations.qpos[:, 2])

    def reward(self, simulations: Simulations, actions: Array, velocity: Array) -> Array:
        forward = self.forward_reward_weight * velocity[:, 0]
        rewards = forward + self.is_healthy(simulations) * self.healthy_reward
        contact = self.contact_cost_weight * squares(simulations.cfrc_ext)
        contact = np.clip(contact, *self.contact_cost_range)
        reward: Array = rewards - (self.ctrl_cost_weight * squares(simulations.ctrl) + contact)
        return reward


@dataclass(frozen=True, kw_only=True)
class HumanoidStandup(Person):
    """A humanoid stands up."""

    xml_file: str = "humanoidstandup.xml"
    uph_cost_weight: float = 1.0
    """Unused, as in gymnasium's env."""
    impact_cost_weight: float = 0.5e-6
    impact_cost_range: Range = (-np.inf, 10.0)

    def reward(self, simulations: Simulations, actions: Array, velocity: Array) -> Array:
        height = simulations.qpos[:, 2] / simulations.model.opt.timestep
        impact = self.impact_cost_weight * squares(simulations.cfrc_ext)
        impact = np.clip(impact, *self.impact_cost_range)
        reward: Array = height - self.ctrl_cost_weight * squares(simulations.ctrl) - impact + 1
        return reward
