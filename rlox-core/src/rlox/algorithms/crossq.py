"""CrossQ, from ``rlox-offpolicy``."""

from rlox.errors import missing_extra

try:
    from rlox_offpolicy.crossq import CrossQ
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.CrossQ", "offpolicy") from error

__all__ = ["CrossQ"]
