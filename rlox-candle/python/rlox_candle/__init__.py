"""Rollouts collected by a Rust thread: native envs, a candle policy, and advantages."""

from rlox_candle._candle import CandleCollector, __version__

__all__ = ["CandleCollector", "__version__"]
