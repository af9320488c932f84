"""IQL, from ``rlox-offline``."""

from rlox.errors import missing_extra

try:
    from rlox_offline.iql import IQL
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.IQL", "offline") from error

__all__ = ["IQL"]
