"""IMPALA, from ``rlox-onpolicy``."""

from rlox.errors import missing_extra

try:
    from rlox_onpolicy.impala import IMPALA
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.IMPALA", "onpolicy") from error

__all__ = ["IMPALA"]
