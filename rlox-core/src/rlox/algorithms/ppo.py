"""PPO, from ``rlox-onpolicy``."""

from rlox.errors import missing_extra

try:
    from rlox_onpolicy.ppo import PPO
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.PPO", "onpolicy") from error

__all__ = ["PPO"]
