"""``rlox.collectors``: the documented path of :mod:`rlox.rollouts.collector`."""

from rlox.rollouts.collector import RolloutCollector

__all__ = ["RolloutCollector"]
