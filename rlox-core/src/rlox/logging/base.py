"""Logger base class, and lists of loggers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt

Metrics = Mapping[str, float]
"""Values by name."""

Table = Mapping[str, Sequence[Any]]
"""Columns of equal length by name, of strings, numbers and bools."""


class LoggerCallback:
    """Base logger: override the events of interest; the others do nothing."""

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Handle one collect-and-learn round that ended at env step ``step``."""

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Handle an evaluation at env step ``step``."""

    def on_table(self, step: int, name: str, table: Table) -> None:
        """Handle a table, such as sampled completions and their rewards, of step ``step``."""

    def on_video(self, step: int, name: str, frames: npt.NDArray[np.uint8], fps: float) -> None:
        """Handle a video, such as a world model's predictions, of step ``step``.

        Args:
            step: in the training's steps.
            name: of the video.
            frames: (T, height, width, 3) uint8 RGB.
            fps: frames per second.
        """

    def rewind(self, step: int) -> None:
        """Drop rows logged after env step ``step``; a resumed training logs them again.

        Called once, before anything is logged, when a training continues in its folder from a
        checkpoint of that env step.
        """

    def close(self) -> None:
        """Write out pending data and free the resources."""


def rows_of(name: str, table: Table) -> list[tuple[Any, ...]]:
    """Return the rows of a table.

    Raises:
        ValueError: the columns differ in length.
    """
    lengths = {column: len(values) for column, values in table.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns of the table '{name}' must be equally long, got {lengths}")
    return list(zip(*table.values(), strict=True))


def require_logger(logger: object) -> None:
    """Refuse anything but a logger.

    Raises:
        TypeError: it is a class, a name, or anything else.
    """
    if not isinstance(logger, LoggerCallback):
        raise TypeError(
            f"a logger must be a rlox.logging.LoggerCallback object, got {logger!r}; rlox.make "
            "takes names too"
        )


class MetricsLogger(LoggerCallback):
    """A logger that writes the metrics of trainings and of evaluations in the same way."""

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Write the metrics of an iteration."""
        self._log("train", step, metrics)

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Write the metrics of an evaluation."""
        self._log("eval", step, metrics)

    def _log(self, kind: str, step: int, metrics: Metrics) -> None:
        raise NotImplementedError


class LoggerList(LoggerCallback):
    """Several loggers in sequence.

    Args:
        loggers: called in this order.
    """

    def __init__(self, *loggers: LoggerCallback) -> None:
        for logger in loggers:
            require_logger(logger)
        self.loggers = loggers

    def _each(self, event: str, *values: Any) -> None:
        for logger in self.loggers:
            getattr(logger, event)(*values)

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Pass on to every logger."""
        self._each("on_train_step", step, metrics)

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Pass on to every logger."""
        self._each("on_eval", step, metrics)

    def on_table(self, step: int, name: str, table: Table) -> None:
        """Pass on to every logger."""
        self._each("on_table", step, name, table)

    def on_video(self, step: int, name: str, frames: npt.NDArray[np.uint8], fps: float) -> None:
        """Pass on to every logger."""
        self._each("on_video", step, name, frames, fps)

    def rewind(self, step: int) -> None:
        """Pass on to every logger."""
        self._each("rewind", step)

    def close(self) -> None:
        """Close every logger, even after one fails."""
        with ExitStack() as closing:
            for logger in reversed(self.loggers):
                closing.callback(logger.close)
