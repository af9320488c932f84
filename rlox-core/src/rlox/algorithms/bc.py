"""BC, from ``rlox-offline``."""

from rlox.errors import missing_extra

try:
    from rlox_offline.bc import BC
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.BC", "offline") from error

__all__ = ["BC"]
