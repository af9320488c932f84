"""Vector envs of several agents: PettingZoo's, and simple_spread in NumPy."""

from rlox_marl.envs.groups import group_agents
from rlox_marl.envs.pettingzoo import PettingZooVecEnv

__all__ = ["PettingZooVecEnv", "group_agents"]
