"""MuJoCo envs, stepped many at once on MuJoCo's own threads."""

from rlox.envs.mujoco.simulations import Simulations
from rlox.envs.mujoco.task import MujocoTask
from rlox.envs.mujoco.tasks import TASKS
from rlox.envs.mujoco.vec_env import MujocoOptions, MujocoVecEnv, make_vec_env, unavailable

__all__ = [
    "TASKS",
    "MujocoOptions",
    "MujocoTask",
    "MujocoVecEnv",
    "Simulations",
    "make_vec_env",
    "unavailable",
]
