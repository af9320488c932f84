"""The common base of gymnasium's MuJoCo tasks.

Numbers and the order of operations are gymnasium's, so that physics, observations, rewards and
ends are equal bit by bit; ``docs/how-to/train-on-mujoco.md`` names what may differ in the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rlox_simulators.mujoco.simulations import Simulations

__all__ = ["Healthy", "NoisyTask", "between", "clipped", "squares"]

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Range = tuple[float, float]


def squares(values: Array) -> Array:
    """(N,) sums of squares of rows, in NumPy's order for one row."""
    total: Array = np.add.reduce(np.square(values.reshape(len(values), -1)), axis=-1)
    return total


def clipped(values: Array, low: float, high: float) -> Array:
    """Values within bounds, as ``np.clip``, which takes several times as long for few."""
    within: Array = np.minimum(np.maximum(values, low), high)
    return within


def between(low_high: Range, values: Array) -> Mask:
    """Whether values lie strictly within a range."""
    inside: Mask = (low_high[0] < values) & (values < low_high[1])
    return inside


@dataclass(frozen=True, kw_only=True)
class NoisyTask:
    """What the tasks have in common: no end, and uniform noise at the beginning."""

    xml_file: str
    frame_skip: int
    reset_noise_scale: float = 0.1
    contact_forces: ClassVar[bool] = False
    normal_velocities: ClassVar[bool] = False
    """Whether the first velocities are normal."""

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
    """Ends where :meth:`healthy` is false, if it shall."""

    terminate_when_unhealthy: bool

    def healthy(self, simulations: Simulations) -> Mask:
        raise NotImplementedError

    def is_healthy(self, simulations: Simulations) -> Mask:
        """:meth:`healthy`, which rewards and ends share."""
        return simulations.once("healthy", self.healthy)

    def terminated(self, simulations: Simulations) -> Mask:
        if not self.terminate_when_unhealthy:
            return np.zeros(simulations.n, np.bool_)
        return ~self.is_healthy(simulations)
