"""VDN, from ``rlox-marl``."""

from rlox.errors import missing_extra

try:
    from rlox_marl.vdn import VDN
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.VDN", "marl") from error

__all__ = ["VDN"]
