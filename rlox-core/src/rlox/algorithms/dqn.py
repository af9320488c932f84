"""DQN, from ``rlox-offpolicy``."""

from rlox.errors import missing_extra

try:
    from rlox_offpolicy.dqn import DQN
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.DQN", "offpolicy") from error

__all__ = ["DQN"]
