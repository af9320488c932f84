"""IndependentQ, from ``rlox-marl``."""

from rlox.errors import missing_extra

try:
    from rlox_marl.independent_q import IndependentQ
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.IndependentQ", "marl") from error

__all__ = ["IndependentQ"]
