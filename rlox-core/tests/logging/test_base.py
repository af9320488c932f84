"""Tests of :mod:`rlox.logging.base`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlox.logging import JsonlLogger, LoggerCallback, LoggerList

Write = Callable[[LoggerCallback], None]


def test_list_passes_on_to_every_logger(tmp_path: Path, write: Write) -> None:
    """All loggers of a list write the same rows and are closed."""
    write(LoggerList(JsonlLogger(tmp_path / "a"), JsonlLogger(tmp_path / "b")))
    texts = {(tmp_path / name / "metrics.jsonl").read_text() for name in "ab"}
    assert len(texts) == 1
