"""APPO, from ``rlox-onpolicy``."""

from rlox.errors import missing_extra

try:
    from rlox_onpolicy.appo import APPO
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.APPO", "onpolicy") from error

__all__ = ["APPO"]
