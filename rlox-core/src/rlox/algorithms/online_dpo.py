"""OnlineDPO, from ``rlox-llm``."""

from rlox.errors import missing_extra

try:
    from rlox_llm.online_dpo import OnlineDPO
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.OnlineDPO", "llm") from error

__all__ = ["OnlineDPO"]
