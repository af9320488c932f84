"""A2C, from ``rlox-onpolicy``."""

from rlox.errors import missing_extra

try:
    from rlox_onpolicy.a2c import A2C
except ModuleNotFoundError as error:
    raise missing_extra("rlox.algorithms.A2C", "onpolicy") from error

__all__ = ["A2C"]
