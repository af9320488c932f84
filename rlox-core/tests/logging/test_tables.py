"""Tests of tables in loggers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlox.logging import ConsoleLogger, JsonlLogger

COMPLETIONS = {"prompt": ["2+2=", "1+1="], "reward": [1.0, 0.0]}


def test_jsonl_keeps_tables_beside_the_metrics(tmp_path: Path) -> None:
    """A line each; rewinding drops what comes again."""
    logger = JsonlLogger(tmp_path)
    for step in (1, 2, 3):
        logger.on_train_step(step, {"loss": 0.5})
        logger.on_table(step, "completions", COMPLETIONS)
    logger.close()
    path = tmp_path / "tables.jsonl"
    assert json.loads(path.read_text().splitlines()[0]) == {
        "name": "completions", "step": 1, "columns": COMPLETIONS,
    }  # fmt: skip
    resumed = JsonlLogger(tmp_path)
    resumed.rewind(2)
    resumed.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]


def test_console_prints_the_first_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """And says how many there are."""
    ConsoleLogger().on_table(7, "completions", {"prompt": list("abcdef")})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "completions step=7 prompt='a'"
    assert lines[-1] == "completions step=7 and 2 more rows"


def test_columns_of_different_lengths_are_refused(tmp_path: Path) -> None:
    """The text has the lengths."""
    logger = JsonlLogger(tmp_path)
    with pytest.raises(ValueError, match="'completions' must be equally long"):
        logger.on_table(0, "completions", {"prompt": ["a"], "reward": []})
    logger.close()


def test_tensorboard_writes_text(tmp_path: Path) -> None:
    """Under a tag of its own."""
    pytest.importorskip("tensorboard")
    pytest.importorskip("torch")
    from rlox.logging import TensorBoardLogger
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = TensorBoardLogger(tmp_path)
    logger.on_table(5, "completions", COMPLETIONS)
    logger.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.Tags()["tensors"] == ["tables/completions/text_summary"]
