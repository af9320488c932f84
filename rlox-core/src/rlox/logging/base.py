"""What a logger hears, and several loggers in sequence."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["LoggerCallback", "LoggerList", "Metrics"]

Metrics = Mapping[str, float]
"""Values by name."""


class LoggerCallback:
    """Base logger: override the events of interest, the others do nothing."""

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Handle one collect-and-learn round, which ended at env step ``step``."""

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Handle an evaluation at env step ``step``."""

    def close(self) -> None:
        """Write out what is pending and free the resources."""


class LoggerList(LoggerCallback):
    """Several loggers in sequence.

    Args:
        loggers: called in this order.
    """

    def __init__(self, *loggers: LoggerCallback) -> None:
        self.loggers = loggers

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Pass on to every logger."""
        for logger in self.loggers:
            logger.on_train_step(step, metrics)

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Pass on to every logger."""
        for logger in self.loggers:
            logger.on_eval(step, metrics)

    def close(self) -> None:
        """Close every logger."""
        for logger in self.loggers:
            logger.close()
