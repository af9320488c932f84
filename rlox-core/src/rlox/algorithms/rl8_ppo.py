"""RL8PPO, from ``rlox-rl8``."""

from rlox.errors import missing_extra

try:
    from rlox_rl8.rl8_ppo import RL8PPO
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.RL8PPO", "rl8") from error

__all__ = ["RL8PPO"]
