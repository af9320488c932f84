"""TD3BC, from ``rlox-offline``."""

from rlox.errors import missing_extra

try:
    from rlox_offline.td3_bc import TD3BC
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.TD3BC", "offline") from error

__all__ = ["TD3BC"]
