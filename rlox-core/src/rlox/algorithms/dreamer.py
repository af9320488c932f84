"""DreamerV3, from ``rlox-dreamer``."""

from rlox.errors import missing_extra

try:
    from rlox_dreamer.dreamer import DreamerV3
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.DreamerV3", "dreamer") from error

__all__ = ["DreamerV3"]
