"""Vector envs: making, running and checking them, episode statistics."""

from rlox.envs.gymnasium import GymVecEnv, Vectorization
from rlox.envs.make import env_id_of, fixed_env_count, make_vec_env
from rlox.envs.running import EpisodeStatistics, RunningEnvs
from rlox.envs.validate import require_vec_step

__all__ = [
    "EpisodeStatistics",
    "GymVecEnv",
    "RunningEnvs",
    "Vectorization",
    "env_id_of",
    "fixed_env_count",
    "make_vec_env",
    "require_vec_step",
]
