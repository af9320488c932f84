"""Vector envs of several agents: PettingZoo's, and simple_spread in NumPy."""

from rlox_marl.envs.groups import group_agents
from rlox_marl.envs.pettingzoo import PettingZooVecEnv
from rlox_marl.envs.processes import PettingZooProcesses
from rlox_marl.envs.simple_spread import SimpleSpreadVecEnv
from rlox_marl.envs.statistics import TeamStatistics

__all__ = [
    "PettingZooProcesses",
    "PettingZooVecEnv",
    "SimpleSpreadVecEnv",
    "TeamStatistics",
    "group_agents",
]
