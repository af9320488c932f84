"""MAPPO, from ``rlox-marl``."""

from rlox.errors import missing_extra

try:
    from rlox_marl.mappo import MAPPO
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.MAPPO", "marl") from error

__all__ = ["MAPPO"]
