"""JSON Lines logger."""

from __future__ import annotations

import json
import math
from pathlib import Path

from rlox.logging.base import LoggerCallback, Metrics, Table, rows_of
from rlox.logging.files import keep_lines, open_for_appending

__all__ = ["JsonlLogger"]


class JsonlLogger(LoggerCallback):
    """One JSON object a line in ``metrics.jsonl``: ``kind``, ``step``, and the metrics.

    Tables go to ``tables.jsonl``: ``name``, ``step`` and the columns.

    Args:
        log_dir: folder; made if missing, and an existing file is continued.
    """

    def __init__(self, log_dir: str | Path = "runs") -> None:
        self._path = Path(log_dir, "metrics.jsonl")
        self._file = open_for_appending(log_dir, self._path.name)
        self._tables = Path(log_dir, "tables.jsonl")

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Write a row of kind ``train``."""
        self._write("train", step, metrics)

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Write a row of kind ``eval``."""
        self._write("eval", step, metrics)

    def on_table(self, step: int, name: str, table: Table) -> None:
        """Write a line to ``tables.jsonl``."""
        rows_of(name, table)
        columns = {column: list(values) for column, values in table.items()}
        line = json.dumps({"name": name, "step": step, "columns": columns})
        with open_for_appending(self._tables.parent, self._tables.name) as file:
            file.write(line + "\n")

    def _write(self, kind: str, step: int, metrics: Metrics) -> None:
        # JSON has no NaN: null says "no value yet"
        row = {k: (v if math.isfinite(v) else None) for k, v in metrics.items()}
        self._file.write(json.dumps({"kind": kind, "step": step, **row}) + "\n")
        self._file.flush()

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
