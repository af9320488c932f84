"""MuJoCo envs, stepped many at once on MuJoCo's own threads."""

from rlox_simulators.mujoco.simulations import Simulations
from rlox_simulators.mujoco.tasks import TASKS
from rlox_simulators.mujoco.vec_env import (
    MujocoTask,
    MujocoVecEnv,
    make_vec_env,
    unavailable,
)
from rlox_simulators.options import MujocoOptions

__all__ = [
    "TASKS",
    "MujocoOptions",
    "MujocoTask",
    "MujocoVecEnv",
    "Simulations",
    "make_vec_env",
    "unavailable",
]
