"""Protocol of MuJoCo tasks: a model, observations, rewards, ends and beginnings."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rlox_simulators.mujoco.simulations import Simulations

__all__ = ["MujocoTask"]

Array = npt.NDArray[Any]


class MujocoTask(Protocol):
    """A task for :class:`rlox_simulators.mujoco.MujocoVecEnv`, with all N simulations at once."""

    xml_file: str
    """The model; see :class:`rlox_simulators.mujoco.Simulations`."""
    frame_skip: int
    """Substeps of a step."""
    contact_forces: bool
    """Whether ``simulations.cfrc_ext`` is computed."""

    def observe(self, simulations: Simulations) -> Array:
        """Return new (N, D) float64 observations."""

    def position(self, simulations: Simulations) -> Array:
        """Return new (N, k) positions whose velocities :meth:`reward` gets."""

    def reward(self, simulations: Simulations, actions: Array, velocity: Array) -> Array:
        """Return (N,) rewards of a step.

        Args:
            simulations: after the step.
            actions: (N, nu) float32.
            velocity: (N, k) what the positions changed by in the step, per second.
        """

    def terminated(self, simulations: Simulations) -> npt.NDArray[np.bool_]:
        """Return (N,) whether the step ended the task."""

    def begin(self, rng: np.random.Generator, qpos: Array, qvel: Array) -> None:
        """Draw the beginning of an episode in place.

        Args:
            rng: the stream of one env.
            qpos: (nq,) the model's positions.
            qvel: (nv,) its velocities, zeros.
        """
