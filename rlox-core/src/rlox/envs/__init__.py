"""Vector envs: making, running and checking them, episode statistics."""

from rlox.envs.episodes import EpisodeStatistics
from rlox.envs.gymnasium import GymVecEnv, Vectorization
from rlox.envs.make import env_id_of, fixed_env_count, make_vec_env
from rlox.envs.playing import OnePlayer, Player, TeamPlayer
from rlox.envs.running import RunningEnvs
from rlox.envs.teams import is_team, make_team_env, team_backend
from rlox.envs.validate import require_vec_step

__all__ = [
    "EpisodeStatistics",
    "GymVecEnv",
    "OnePlayer",
    "Player",
    "RunningEnvs",
    "TeamPlayer",
    "Vectorization",
    "env_id_of",
    "fixed_env_count",
    "is_team",
    "make_team_env",
    "make_vec_env",
    "require_vec_step",
    "team_backend",
]
