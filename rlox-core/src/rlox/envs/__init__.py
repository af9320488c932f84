"""Vector envs: making, running and checking them, worker processes, episode statistics."""

from rlox.envs.gymnasium import GymVecEnv, Vectorization
from rlox.envs.make import env_id_of, fit_env_count, fixed_env_count, make_vec_env
from rlox.envs.processes import ProcessVecEnv
from rlox.envs.running import CheckedSteps, EpisodeStatistics, RunningEnvs
from rlox.envs.teams import is_team, make_team_env, team_backend
from rlox.envs.workers.arena import Arena
from rlox.envs.workers.process import Supervisor, WorkerProcess, spare_file

__all__ = [
    "Arena",
    "CheckedSteps",
    "EpisodeStatistics",
    "GymVecEnv",
    "ProcessVecEnv",
    "RunningEnvs",
    "Supervisor",
    "Vectorization",
    "WorkerProcess",
    "env_id_of",
    "fit_env_count",
    "fixed_env_count",
    "is_team",
    "make_team_env",
    "make_vec_env",
    "spare_file",
    "team_backend",
]
