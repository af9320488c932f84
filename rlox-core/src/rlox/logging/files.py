"""Loggers of text: metrics on the console, as CSV tables and as JSON lines."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from rlox.config.model import require_integer
from rlox.errors import LoggerError
from rlox.files import open_regular
from rlox.logging.base import LoggerCallback, Metrics, MetricsLogger, Table, rows_of


def open_for_appending(log_dir: str | Path, name: str) -> IO[Any]:
    """Open the file ``name`` in ``log_dir``; the folder is made if missing.

    Raises:
        LoggerError: it is a folder.
        OSError: it cannot be opened, or is a link or not a regular file.
    """
    folder = Path(log_dir)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return open_regular(folder / name, "a")
    except IsADirectoryError:
        raise LoggerError(f"'{folder / name}' must be a file, not a folder; move it away") from None


def keep_lines(path: Path, wanted: Callable[[str], bool]) -> None:
    """Cut a file before its first line that is unwanted, or that a crash left unfinished.

    Raises:
        LoggerError: a line before that is damaged; the file is unchanged.
    """
    with open_regular(path, "r+b") as file:
        kept = 0
        for number, line in enumerate(file, 1):
            try:
                if not (line.endswith(b"\n") and wanted(line.decode("utf-8"))):
                    break
            except (LookupError, RecursionError, TypeError, ValueError) as error:
                raise LoggerError(
                    f"'{path}' is damaged in line {number}: {error}; move it away, and the run "
                    "goes on with a new one"
                ) from None
            kept += len(line)
        file.truncate(kept)


TABLES = {"train": "metrics.csv", "eval": "evaluations.csv"}


class CsvLogger(MetricsLogger):
    """The training metrics as a table, ``metrics.csv``, and the evaluations', ``evaluations.csv``.

    The first row's metrics become the columns; a continued file keeps its columns. A metric
    without a value is an empty cell.

    Args:
        log_dir: folder; made if missing, and existing files are continued.
    """

    def __init__(self, log_dir: str | Path = "runs") -> None:
        self._log_dir = Path(log_dir)
        self._log_dir.mkdir(parents=True, exist_ok=True)
        self._tables: dict[str, tuple[IO[str], csv.DictWriter[str]]] = {}

    def _log(self, kind: str, step: int, metrics: Metrics) -> None:
        name = TABLES[kind]
        if name not in self._tables:
            file = open_for_appending(self._log_dir, name)
            with open_regular(self._log_dir / name) as found:  # a continued table's headings
                columns = next(csv.reader(found), []) or ["step", *metrics]
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            if file.tell() == 0:
                writer.writeheader()
            self._tables[name] = (file, writer)
        file, writer = self._tables[name]
        writer.writerow({"step": step, **_known(metrics)})
        file.flush()

    def rewind(self, step: int) -> None:
        """Cut the tables after the last row up to ``step``."""

        def wanted(line: str) -> bool:
            first = line.partition(",")[0]
            return not first.isdecimal() or int(first) <= step  # the headings are not a number

        for name in TABLES.values():
            if (self._log_dir / name).is_file():
                keep_lines(self._log_dir / name, wanted)

    def close(self) -> None:
        """Close the files, even after one that cannot be written."""
        with ExitStack() as closing:
            for file, _ in self._tables.values():
                closing.callback(file.close)


def _known(metrics: Metrics) -> Metrics:
    """Return the metrics that have a value; NaN means that there is none yet."""
    return {name: value for name, value in metrics.items() if not math.isnan(value)}


class JsonlLogger(MetricsLogger):
    """One JSON object per line in ``metrics.jsonl``: ``kind``, ``step``, and the metrics.

    Tables go to ``tables.jsonl``: ``name``, ``step`` and the columns.

    Args:
        log_dir: folder; made if missing, and an existing file is continued.
    """

    def __init__(self, log_dir: str | Path = "runs") -> None:
        self._path = Path(log_dir, "metrics.jsonl")
        self._file = open_for_appending(log_dir, self._path.name)
        self._tables = Path(log_dir, "tables.jsonl")

    def on_table(self, step: int, name: str, table: Table) -> None:
        """Write a line to ``tables.jsonl``."""
        rows_of(name, table)
        columns = {column: list(values) for column, values in table.items()}
        line = json.dumps({"name": name, "step": step, "columns": columns})
        with open_for_appending(self._tables.parent, self._tables.name) as file:
            file.write(line + "\n")

    def _log(self, kind: str, step: int, metrics: Metrics) -> None:
        print(_json_line(kind, step, metrics), file=self._file, flush=True)

    def rewind(self, step: int) -> None:
        """Cut the file after the row of the iteration that ended at ``step``."""
        ended = False

        def wanted(line: str) -> bool:
            nonlocal ended
            row = json.loads(line)
            if ended or row["step"] > step:
                return False
            ended = row["kind"] == "train" and row["step"] == step
            return True

        keep_lines(self._path, wanted)
        if self._tables.exists():
            keep_lines(self._tables, lambda line: bool(json.loads(line)["step"] <= step))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _json_line(kind: str, step: int, metrics: Metrics) -> str:
    # JSON has no NaN: null means "no value yet"
    row = {k: (v if math.isfinite(v) else None) for k, v in metrics.items()}
    return json.dumps({"kind": kind, "step": step, **row})


class PrintedJsonLogger(MetricsLogger):
    """The lines of :class:`JsonlLogger`'s ``metrics.jsonl`` on standard output."""

    def __init__(self, log_dir: str | Path) -> None:
        """Print; no folder is needed."""

    def _log(self, kind: str, step: int, metrics: Metrics) -> None:
        print(_json_line(kind, step, metrics), flush=True)


SHOWN_ROWS = 4
"""Number of rows of a table to print."""


class ConsoleLogger(LoggerCallback):
    """A line of metrics on standard output, without metrics that have no value.

    Args:
        log_interval: env steps between lines.
    """

    def __init__(self, log_interval: int = 1000) -> None:
        self.log_interval = require_integer("log_interval", log_interval, at_least=1)
        self._next = 0
        self._last = 0

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Print a line when ``log_interval`` env steps have passed since the last."""
        if step < self._last:  # another training, or this one from a checkpoint
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
        values = " ".join(f"{name}={value:.4g}" for name, value in _known(metrics).items())
        print(f"{kind} step={step} {values}", flush=True)


def console_logger(log_dir: str | Path) -> ConsoleLogger:
    """Return a console logger; it needs no folder."""
    return ConsoleLogger()
