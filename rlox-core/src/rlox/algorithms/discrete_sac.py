"""DiscreteSAC, from ``rlox-offpolicy``."""

from rlox.errors import missing_extra

try:
    from rlox_offpolicy.discrete_sac import DiscreteSAC
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.DiscreteSAC", "offpolicy") from error

__all__ = ["DiscreteSAC"]
