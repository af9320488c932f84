"""DPO, from ``rlox-llm``."""

from rlox.errors import missing_extra

try:
    from rlox_llm.dpo import DPO
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.DPO", "llm") from error

__all__ = ["DPO"]
