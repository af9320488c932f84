"""TD3, from ``rlox-offpolicy``."""

from rlox.errors import missing_extra

try:
    from rlox_offpolicy.td3 import TD3
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.TD3", "offpolicy") from error

__all__ = ["TD3"]
