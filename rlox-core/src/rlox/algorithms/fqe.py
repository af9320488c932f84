"""FQE, from ``rlox-offline``."""

from rlox.errors import missing_extra

try:
    from rlox_offline.fqe import FQE
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.FQE", "offline") from error

__all__ = ["FQE"]
