"""Tests of :mod:`rlox.logging`."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
from rlox.errors import MissingDependencyError
from rlox.logging import (
    ConsoleLogger,
    CsvLogger,
    JsonlLogger,
    LoggerCallback,
    LoggerList,
    TensorBoardLogger,
)

NAN = float("nan")


def write(logger: LoggerCallback) -> None:
    """Log two rounds and an evaluation, then close."""
    logger.on_train_step(8, {"mean_reward": NAN, "loss": 0.5})
    logger.on_eval(8, {"mean_reward": 12.0})
    logger.on_train_step(16, {"mean_reward": 3.25, "loss": 0.25})
    logger.close()


def rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_jsonl_has_one_object_a_line(tmp_path: Path) -> None:
    """Every row is strict JSON; a value that does not exist yet is null."""
    write(JsonlLogger(tmp_path / "new" / "folder"))
    lines = (tmp_path / "new" / "folder" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=pytest.fail) for line in lines] == [
        {"kind": "train", "step": 8, "mean_reward": None, "loss": 0.5},
        {"kind": "eval", "step": 8, "mean_reward": 12.0},
        {"kind": "train", "step": 16, "mean_reward": 3.25, "loss": 0.25},
    ]


def test_jsonl_continues_a_file(tmp_path: Path) -> None:
    """A resumed run appends to what is there."""
    write(JsonlLogger(tmp_path))
    write(JsonlLogger(tmp_path))
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 6


def test_rows_are_on_disk_before_close(tmp_path: Path) -> None:
    """A crash loses no row that was logged."""
    jsonl, table = JsonlLogger(tmp_path), CsvLogger(tmp_path)
    for logger in (jsonl, table):
        logger.on_train_step(8, {"loss": 0.5})
    assert (tmp_path / "metrics.jsonl").read_text().endswith("}\n")
    assert rows(tmp_path / "metrics.csv") == [{"step": "8", "loss": "0.5"}]
    jsonl.close()
    table.close()


def test_csv_has_a_table_each_for_training_and_evaluations(tmp_path: Path) -> None:
    """The two kinds have different columns."""
    write(CsvLogger(tmp_path))
    assert rows(tmp_path / "metrics.csv") == [
        {"step": "8", "mean_reward": "nan", "loss": "0.5"},
        {"step": "16", "mean_reward": "3.25", "loss": "0.25"},
    ]
    assert rows(tmp_path / "evaluations.csv") == [{"step": "8", "mean_reward": "12.0"}]


def test_csv_continues_a_file_in_its_columns(tmp_path: Path) -> None:
    """A resumed run with other metrics keeps the columns that the file has."""
    write(CsvLogger(tmp_path))
    logger = CsvLogger(tmp_path)
    logger.on_train_step(24, {"entropy": 1.0, "loss": 0.125})
    logger.close()
    assert rows(tmp_path / "metrics.csv")[-1] == {
        "step": "24", "mean_reward": "", "loss": "0.125",
    }  # fmt: skip


def test_console_prints_at_its_interval(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of training are at least the interval apart, evaluations always shown."""
    logger = ConsoleLogger(log_interval=100)
    for step in (40, 80, 120, 140, 180, 260):
        logger.on_train_step(step, {"loss": 1 / 3})
    logger.on_eval(260, {"mean_reward": 1234.5})
    assert capsys.readouterr().out.splitlines() == [
        "train step=40 loss=0.3333",
        "train step=140 loss=0.3333",
        "train step=260 loss=0.3333",
        "eval step=260 mean_reward=1234",
    ]


def test_console_interval_must_be_positive() -> None:
    """An interval of nothing is refused."""
    with pytest.raises(ValueError, match=r"^log_interval must be at least 1, got 0$"):
        ConsoleLogger(log_interval=0)


def test_list_passes_on_to_every_logger(tmp_path: Path) -> None:
    """All loggers of a list write the same rows and are closed."""
    write(LoggerList(JsonlLogger(tmp_path / "a"), JsonlLogger(tmp_path / "b")))
    texts = {(tmp_path / name / "metrics.jsonl").read_text() for name in "ab"}
    assert len(texts) == 1


def test_base_logger_ignores_everything() -> None:
    """A logger overrides only what it wants."""
    write(LoggerCallback())


def test_tensorboard_writes_scalars(tmp_path: Path) -> None:
    """The event file, read back, has every finite value under its tag and env step."""
    pytest.importorskip("torch")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write(TensorBoardLogger(tmp_path / "run"))
    events = accumulator.EventAccumulator(str(tmp_path / "run"))
    events.Reload()
    scalars = {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }
    assert scalars == {
        "train/loss": [(8, 0.5), (16, 0.25)],
        "train/mean_reward": [(16, 3.25)],
        "eval/mean_reward": [(8, 12.0)],
    }


def test_tensorboard_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the libraries the error says what to install."""
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingDependencyError) as caught:
        TensorBoardLogger("unused")
    assert str(caught.value) == (
        "TensorBoardLogger needs a distribution that is not installed; "
        'run: pip install "rlox[tensorboard]"'
    )
