"""Tests of :mod:`rlox.logging.files`."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

from rlox.logging import CsvLogger, LoggerCallback

Write = Callable[[LoggerCallback], None]


def rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv_has_a_table_each_for_training_and_evaluations(tmp_path: Path, write: Write) -> None:
    """The two kinds have different columns."""
    write(CsvLogger(tmp_path))
    assert rows(tmp_path / "metrics.csv") == [
        {"step": "8", "mean_reward": "nan", "loss": "0.5"},
        {"step": "16", "mean_reward": "3.25", "loss": "0.25"},
    ]
    assert rows(tmp_path / "evaluations.csv") == [{"step": "8", "mean_reward": "12.0"}]


def test_csv_continues_a_file_in_its_columns(tmp_path: Path, write: Write) -> None:
    """A resumed run with other metrics keeps the columns that the file has."""
    write(CsvLogger(tmp_path))
    logger = CsvLogger(tmp_path)
    logger.on_train_step(24, {"entropy": 1.0, "loss": 0.125})
    logger.close()
    assert rows(tmp_path / "metrics.csv")[-1] == {
        "step": "24", "mean_reward": "", "loss": "0.125",
    }  # fmt: skip


def test_csv_rewinds_both_tables(tmp_path: Path, write: Write) -> None:
    """Later rows and half a row are cut, the headings never; what follows is appended."""
    write(CsvLogger(tmp_path))
    table = tmp_path / "metrics.csv"
    table.write_text(table.read_text() + "1")
    logger = CsvLogger(tmp_path)
    logger.rewind(8)
    logger.on_train_step(16, {"mean_reward": 1.0, "loss": 0.0})
    logger.close()
    assert [row["step"] for row in rows(table)] == ["8", "16"]
    assert rows(table)[-1]["loss"] == "0.0"
    logger = CsvLogger(tmp_path)
    logger.rewind(0)
    logger.close()
    assert table.read_text() == "step,mean_reward,loss\n"
    assert rows(tmp_path / "evaluations.csv") == []


def test_rows_are_on_disk_before_close(tmp_path: Path) -> None:
    """A crash loses no row that was logged."""
    logger = CsvLogger(tmp_path)
    logger.on_train_step(8, {"loss": 0.5})
    assert rows(tmp_path / "metrics.csv") == [{"step": "8", "loss": "0.5"}]
    logger.close()
