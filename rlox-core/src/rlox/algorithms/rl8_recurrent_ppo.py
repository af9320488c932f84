"""RL8RecurrentPPO, from ``rlox-rl8``."""

from rlox.errors import missing_extra

try:
    from rlox_rl8.rl8_recurrent_ppo import RL8RecurrentPPO
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.RL8RecurrentPPO", "rl8") from error

__all__ = ["RL8RecurrentPPO"]
