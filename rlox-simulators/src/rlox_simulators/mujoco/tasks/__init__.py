"""The MuJoCo tasks of gymnasium, version 5, by their ids."""

from __future__ import annotations

from typing import Any

from rlox_simulators.mujoco.tasks.arms import Pusher, Reacher
from rlox_simulators.mujoco.tasks.humanoids import Humanoid, HumanoidStandup
from rlox_simulators.mujoco.tasks.pendulums import InvertedDoublePendulum, InvertedPendulum
from rlox_simulators.mujoco.tasks.runners import Ant, HalfCheetah, Hopper, Swimmer, Walker2d

__all__ = ["TASKS"]


TASKS: dict[str, type[Any]] = {
    f"{task.__name__}-v5": task
    for task in (
        Ant, HalfCheetah, Hopper, Humanoid, HumanoidStandup, InvertedDoublePendulum,
        InvertedPendulum, Pusher, Reacher, Swimmer, Walker2d,
    )
}  # fmt: skip
"""The tasks by gymnasium's ids; their fields are the arguments of the envs."""
