"""QMIX, from ``rlox-marl``."""

from rlox.errors import missing_extra

try:
    from rlox_marl.qmix import QMIX
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.QMIX", "marl") from error

__all__ = ["QMIX"]
