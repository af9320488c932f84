"""CSV logger: metrics as tables."""

from __future__ import annotations

import csv
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from rlox.files import open_regular
from rlox.logging.base import LoggerCallback, Metrics
from rlox.logging.files import keep_lines, open_for_appending

__all__ = ["CsvLogger"]


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
            file = open_for_appending(self._log_dir, name)
            columns = _columns(self._log_dir / name) or ["step", *metrics]
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            if file.tell() == 0:
                writer.writeheader()
            self._tables[name] = (file, writer)
        file, writer = self._tables[name]
        writer.writerow({"step": step, **metrics})
        file.flush()

    def rewind(self, step: int) -> None:
        """Cut the tables after the last row up to ``step``."""

        def wanted(line: str) -> bool:
            first = line.partition(",")[0]
            return not first.isdecimal() or int(first) <= step  # the headings are no number

        for name in ("metrics.csv", "evaluations.csv"):
            if (self._log_dir / name).is_file():
                keep_lines(self._log_dir / name, wanted)

    def close(self) -> None:
        """Close the files, those too that come after one that cannot be written."""
        with ExitStack() as closing:
            for file, _ in self._tables.values():
                closing.callback(file.close)


def _columns(path: Path) -> list[str]:
    """Return the columns of a table; an empty file has none."""
    with open_regular(path) as file:
        return next(csv.reader(file), [])
