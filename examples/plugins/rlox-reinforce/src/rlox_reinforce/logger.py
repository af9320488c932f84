"""Metrics as Markdown tables, to paste into an issue or a report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from rlox.logging import LoggerCallback


class MarkdownLogger(LoggerCallback):
    """Writes ``training.md`` and ``evaluation.md``; a value that is not known yet is a dash.

    The first row's metrics make the columns, and an existing table is continued under its own.

    Args:
        log_dir: folder; made if missing.
    """

    def __init__(self, log_dir: str | Path = "runs") -> None:
        self._folder = Path(log_dir)
        self._folder.mkdir(parents=True, exist_ok=True)

    def on_train_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write a row of the training's table."""
        self._write("training.md", step, metrics)

    def on_eval(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write a row of the evaluations' table."""
        self._write("evaluation.md", step, metrics)

    def _write(self, name: str, step: int, metrics: Mapping[str, float]) -> None:
        path = self._folder / name
        if not path.exists():
            columns = ["step", *metrics]
            path.write_text(_row(columns) + _row(["---:"] * len(columns)), encoding="utf-8")
        with path.open(encoding="utf-8") as table:
            header = [cell.strip() for cell in table.readline().strip().strip("|").split("|")]
        values = (metrics.get(column, math.nan) for column in header[1:])
        with path.open("a", encoding="utf-8") as table:
            table.write(
                _row([str(step), *(f"{v:.4g}" if math.isfinite(v) else "–" for v in values)])
            )


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"
