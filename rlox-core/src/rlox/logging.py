"""Where metrics go. Steps are env steps; metric names are in the documentation's glossary."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from rlox.errors import missing_extra

__all__ = [
    "ConsoleLogger",
    "CsvLogger",
    "JsonlLogger",
    "LoggerCallback",
    "LoggerList",
    "TensorBoardLogger",
]

Metrics = Mapping[str, float]


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


class ConsoleLogger(LoggerCallback):
    """A line of metrics on standard output.

    Args:
        log_interval: env steps between lines.
    """

    def __init__(self, log_interval: int = 1000) -> None:
        if log_interval < 1:
            raise ValueError(f"log_interval must be at least 1, got {log_interval}")
        self.log_interval = log_interval
        self._next = 0

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Print a line when ``log_interval`` env steps have passed since the last."""
        if step >= self._next:
            self._next = step + self.log_interval
            self._print("train", step, metrics)

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Print a line."""
        self._print("eval", step, metrics)

    @staticmethod
    def _print(kind: str, step: int, metrics: Metrics) -> None:
        values = " ".join(f"{name}={value:.4g}" for name, value in metrics.items())
        print(f"{kind} step={step} {values}", flush=True)


class JsonlLogger(LoggerCallback):
    """One JSON object a line in ``metrics.jsonl``: ``kind``, ``step``, and the metrics.

    Args:
        log_dir: folder; made if missing, and an existing file is continued.
    """

    def __init__(self, log_dir: str | Path = "runs") -> None:
        self._file = _open(log_dir, "metrics.jsonl")

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Write a row of kind ``train``."""
        self._write("train", step, metrics)

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Write a row of kind ``eval``."""
        self._write("eval", step, metrics)

    def _write(self, kind: str, step: int, metrics: Metrics) -> None:
        # JSON has no NaN: null says "no value yet"
        row = {k: (v if math.isfinite(v) else None) for k, v in metrics.items()}
        self._file.write(json.dumps({"kind": kind, "step": step, **row}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class CsvLogger(LoggerCallback):
    """The training metrics as a table, ``metrics.csv``, and the evaluations', ``evaluations.csv``.

    The first row's metrics make the columns; a continued file keeps those it has.

    Args:
        log_dir: folder; made if missing, and existing files are continued.
    """

    def __init__(self, log_dir: str | Path = "runs") -> None:
        self._log_dir = Path(log_dir)
        self._log_dir.mkdir(parents=True, exist_ok=True)
        self._tables: dict[str, tuple[IO[str], csv.DictWriter[str]]] = {}

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Write a row."""
        self._write("metrics.csv", step, metrics)

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Write a row."""
        self._write("evaluations.csv", step, metrics)

    def _write(self, name: str, step: int, metrics: Metrics) -> None:
        if name not in self._tables:
            file = _open(self._log_dir, name)
            columns = _columns(self._log_dir / name) or ["step", *metrics]
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            if file.tell() == 0:
                writer.writeheader()
            self._tables[name] = (file, writer)
        file, writer = self._tables[name]
        writer.writerow({"step": step, **metrics})
        file.flush()

    def close(self) -> None:
        """Close the files."""
        for file, _ in self._tables.values():
            file.close()


class TensorBoardLogger(LoggerCallback):
    """TensorBoard event files with the tags ``train/<metric>`` and ``eval/<metric>``.

    Args:
        log_dir: folder of the event file.

    Raises:
        MissingDependencyError: torch or tensorboard is not installed.
    """

    def __init__(self, log_dir: str | Path = "runs") -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise missing_extra("TensorBoardLogger", "tensorboard") from None
        self._writer = SummaryWriter(str(log_dir))

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Write one scalar per metric."""
        self._write("train", step, metrics)

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Write one scalar per metric."""
        self._write("eval", step, metrics)

    def _write(self, kind: str, step: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            if math.isfinite(value):
                self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Write out the event file."""
        self._writer.close()


def _columns(path: Path) -> list[str]:
    """Return the columns of a table, none of an empty file."""
    with path.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file), [])


def _open(log_dir: str | Path, name: str) -> IO[Any]:
    folder = Path(log_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / name).open("a", encoding="utf-8", newline="")
