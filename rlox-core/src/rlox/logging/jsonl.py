"""Metrics as lines of JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

from rlox.logging.base import LoggerCallback, Metrics
from rlox.logging.files import open_for_appending

__all__ = ["JsonlLogger"]


class JsonlLogger(LoggerCallback):
    """One JSON object a line in ``metrics.jsonl``: ``kind``, ``step``, and the metrics.

    Args:
        log_dir: folder; made if missing, and an existing file is continued.
    """

    def __init__(self, log_dir: str | Path = "runs") -> None:
        self._file = open_for_appending(log_dir, "metrics.jsonl")

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
