"""The base of algorithms that learn from a dataset, from ``rlox-offline``."""

from rlox.errors import missing_extra

try:
    from rlox_offline.base import OfflineAlgorithm
    from rlox_offline.datasets.protocol import OfflineDataset
except ModuleNotFoundError as error:
    raise missing_extra("rlox.offline.base", "offline") from error

__all__ = ["OfflineAlgorithm", "OfflineDataset"]
