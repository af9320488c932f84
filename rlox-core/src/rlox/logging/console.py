"""Console logger: metrics on standard output."""

from __future__ import annotations

from rlox.config.model import require_integer
from rlox.logging.base import LoggerCallback, Metrics, Table, rows_of

SHOWN_ROWS = 4
"""Rows of a table that are printed."""


class ConsoleLogger(LoggerCallback):
    """A line of metrics on standard output.

    Args:
        log_interval: env steps between lines.
    """

    def __init__(self, log_interval: int = 1000) -> None:
        self.log_interval = require_integer("log_interval", log_interval, at_least=1)
        self._next = 0
        self._last = 0

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Print a line when ``log_interval`` env steps have passed since the last."""
        if step < self._last:  # of another training, or of this one from a checkpoint on
            self._next = 0
        self._last = step
        if step >= self._next:
            self._next = step + self.log_interval
            self._print("train", step, metrics)

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Print a line."""
        self._print("eval", step, metrics)

    def on_table(self, step: int, name: str, table: Table) -> None:
        """Print a line for each of the first rows."""
        rows = rows_of(name, table)
        for row in rows[:SHOWN_ROWS]:
            values = " ".join(
                f"{column}={value!r}" for column, value in zip(table, row, strict=True)
            )
            print(f"{name} step={step} {values}", flush=True)
        if len(rows) > SHOWN_ROWS:
            print(f"{name} step={step} and {len(rows) - SHOWN_ROWS} more rows", flush=True)

    @staticmethod
    def _print(kind: str, step: int, metrics: Metrics) -> None:
        values = " ".join(f"{name}={value:.4g}" for name, value in metrics.items())
        print(f"{kind} step={step} {values}", flush=True)
