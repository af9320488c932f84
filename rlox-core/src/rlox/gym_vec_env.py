"""``rlox.gym_vec_env``: the documented path of :mod:`rlox.envs.gymnasium`."""

from rlox.envs.gymnasium import GymVecEnv, Vectorization
from rlox.envs.make import make_vec_env

__all__ = ["GymVecEnv", "Vectorization", "make_vec_env"]
