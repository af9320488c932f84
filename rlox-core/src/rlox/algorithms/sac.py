"""SAC, from ``rlox-offpolicy``."""

from rlox.errors import missing_extra

try:
    from rlox_offpolicy.sac import SAC
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.SAC", "offpolicy") from error

__all__ = ["SAC"]
