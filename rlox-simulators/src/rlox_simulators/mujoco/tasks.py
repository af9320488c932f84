"""The MuJoCo tasks of gymnasium, version 5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rlox_simulators.mujoco.simulations import Simulations

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Range = tuple[float, float]


def squares(values: Array) -> Array:
    """(N,) sums of squares of rows, added in NumPy's order for a single row."""
    total: Array = np.add.reduce(np.square(values.reshape(len(values), -1)), axis=-1)
    return total


def clipped(values: Array, low: float, high: float) -> Array:
    """Values within bounds; for small arrays several times as fast as ``np.clip``."""
    within: Array = np.minimum(np.maximum(values, low), high)
    return within


def between(low_high: Range, values: Array) -> Mask:
    """Whether values lie strictly within a range."""
    inside: Mask = (low_high[0] < values) & (values < low_high[1])
    return inside


@dataclass(frozen=True, kw_only=True)
class NoisyTask:
    """Base of the tasks: it never ends, and begins with uniform noise."""

    xml_file: str
    frame_skip: int
    reset_noise_scale: float = 0.1
    contact_forces: ClassVar[bool] = False
    normal_velocities: ClassVar[bool] = False
    """Whether the first velocities are drawn from a normal distribution."""

    def position(self, simulations: Simulations) -> Array:
        return np.zeros((simulations.n, 0))

    def terminated(self, simulations: Simulations) -> Mask:
        return np.zeros(simulations.n, np.bool_)

    def begin(self, rng: np.random.Generator, qpos: Array, qvel: Array) -> None:
        scale = self.reset_noise_scale
        qpos += rng.uniform(low=-scale, high=scale, size=len(qpos))
        if self.normal_velocities:
            qvel += scale * rng.standard_normal(len(qvel))
        else:
            qvel += rng.uniform(low=-scale, high=scale, size=len(qvel))


class Healthy:
    """Ends where :meth:`healthy` is false, if ``terminate_when_unhealthy``."""

    terminate_when_unhealthy: bool

    def healthy(self, simulations: Simulations) -> Mask:
        raise NotImplementedError

    def is_healthy(self, simulations: Simulations) -> Mask:
        """:meth:`healthy`, computed once for rewards and ends."""
        return simulations.once("healthy", self.healthy)

    def terminated(self, simulations: Simulations) -> Mask:
        if not self.terminate_when_unhealthy:
            return np.zeros(simulations.n, np.bool_)
        return ~self.is_healthy(simulations)


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


@dataclass(frozen=True, kw_only=True)
class Runner(NoisyTask):
    """Rewards speed along x, minus a cost of controls."""

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.1
    exclude_current_positions_from_observation: bool = True
    skipped: ClassVar[int] = 1
    """Number of leading positions left out of observations."""

    @property
    def first(self) -> int:
        """Index of the first observed position."""
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
    """A cheetah runs in two dimensions."""

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
    """Rewards every step until a fall, which ends it."""

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
    """A leg hops in two dimensions until it falls."""

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
    """Two legs walk in two dimensions until they fall."""

    xml_file: str = "walker2d_v5.xml"
    healthy_z_range: Range = (0.8, 2.0)
    healthy_angle_range: Range = (-1.0, 1.0)

    def healthy(self, simulations: Simulations) -> Mask:
        upright = between(self.healthy_z_range, simulations.qpos[:, 1])
        return upright & between(self.healthy_angle_range, simulations.qpos[:, 2])


@dataclass(frozen=True, kw_only=True)
class Ant(Healthy, Runner):
    """Four legs walk in three dimensions; contact forces are observed and cost reward."""

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


@dataclass(frozen=True, kw_only=True)
class Person(NoisyTask):
    """Observations of the humanoid."""

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
    """A humanoid walks until it falls."""

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


def lengths(vectors: Array) -> Array:
    """(N,) lengths of rows, one at a time: NumPy sums arrays in another order."""
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


TASKS: dict[str, type[Any]] = {
    f"{task.__name__}-v5": task
    for task in (
        Ant, HalfCheetah, Hopper, Humanoid, HumanoidStandup, InvertedDoublePendulum,
        InvertedPendulum, Pusher, Reacher, Swimmer, Walker2d,
    )
}  # fmt: skip
"""The tasks by gymnasium's ids; their fields are the arguments of the envs."""
