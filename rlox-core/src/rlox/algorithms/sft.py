"""SFT, from ``rlox-llm``."""

from rlox.errors import missing_extra

try:
    from rlox_llm.sft import SFT
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.SFT", "llm") from error

__all__ = ["SFT"]
