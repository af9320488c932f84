"""The base of configs of algorithms that learn from a dataset, from ``rlox-offline``."""

from rlox.errors import missing_extra

try:
    from rlox_offline.configs import OfflineConfig
except ModuleNotFoundError as error:
    raise missing_extra("rlox.offline.config", "offline") from error

__all__ = ["OfflineConfig"]
