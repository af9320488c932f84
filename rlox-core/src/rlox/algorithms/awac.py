"""AWAC, from ``rlox-offline``."""

from rlox.errors import missing_extra

try:
    from rlox_offline.awac import AWAC
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.AWAC", "offline") from error

__all__ = ["AWAC"]
