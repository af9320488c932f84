"""HybridPPO, from ``rlox-onpolicy``."""

from rlox.errors import missing_extra

try:
    from rlox_onpolicy.hybrid_ppo import HybridPPO
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.HybridPPO", "onpolicy") from error

__all__ = ["HybridPPO"]
