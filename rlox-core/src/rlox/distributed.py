"""The vector env of env workers, from ``rlox-distributed``."""

from rlox.errors import missing_extra

try:
    from rlox_distributed.pool import RemoteEnvPool
except ModuleNotFoundError as error:
    raise missing_extra("rlox.distributed.RemoteEnvPool", "distributed") from error

__all__ = ["RemoteEnvPool"]
