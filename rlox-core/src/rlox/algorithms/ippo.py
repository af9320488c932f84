"""IPPO, from ``rlox-marl``."""

from rlox.errors import missing_extra

try:
    from rlox_marl.ippo import IPPO
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.IPPO", "marl") from error

__all__ = ["IPPO"]
