"""DDPG, from ``rlox-offpolicy``."""

from rlox.errors import missing_extra

try:
    from rlox_offpolicy.ddpg import DDPG
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.DDPG", "offpolicy") from error

__all__ = ["DDPG"]
