"""BestOfN, from ``rlox-llm``."""

from rlox.errors import missing_extra

try:
    from rlox_llm.best_of_n import BestOfN
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.BestOfN", "llm") from error

__all__ = ["BestOfN"]
