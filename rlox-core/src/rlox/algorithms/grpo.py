"""GRPO, from ``rlox-llm``."""

from rlox.errors import missing_extra

try:
    from rlox_llm.grpo import GRPO
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.GRPO", "llm") from error

__all__ = ["GRPO"]
