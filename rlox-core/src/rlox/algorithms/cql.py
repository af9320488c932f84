"""CQL, from ``rlox-offline``."""

from rlox.errors import missing_extra

try:
    from rlox_offline.cql import CQL
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.CQL", "offline") from error

__all__ = ["CQL"]
