"""Tests of :mod:`rlox.logging.files`."""

import csv
import json

import pytest
from rlox.errors import LoggerError
from rlox.logging import ConsoleLogger, CsvLogger, JsonlLogger
from rlox.logging.files import PrintedJsonLogger


def rows(path):
    """Return the rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv_has_a_table_each_for_training_and_evaluations(tmp_path, write):
    """The two kinds have different columns."""
    write(CsvLogger(tmp_path))
    assert rows(tmp_path / "metrics.csv") == [
        {"step": "8", "mean_reward": "", "loss": "0.5"},
        {"step": "16", "mean_reward": "3.25", "loss": "0.25"},
    ]
    assert rows(tmp_path / "evaluations.csv") == [{"step": "8", "mean_reward": "12.0"}]


def test_console_leaves_out_what_has_no_value(write, capsys):
    """Such as a loss before learning starts."""
    write(ConsoleLogger())
    assert capsys.readouterr().out.splitlines()[0] == "train step=8 loss=0.5"


def test_csv_continues_a_file_in_its_columns(tmp_path, write):
    """A resumed run with other metrics keeps the columns that the file has."""
    write(CsvLogger(tmp_path))
    logger = CsvLogger(tmp_path)
    logger.on_train_step(24, {"entropy": 1.0, "loss": 0.125})
    logger.close()
    assert rows(tmp_path / "metrics.csv")[-1] == {
        "step": "24", "mean_reward": "", "loss": "0.125",
    }  # fmt: skip


def test_csv_rewinds_both_tables(tmp_path, write):
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


def test_jsonl_has_one_object_a_line(tmp_path, write, capsys):
    """Every row is strict JSON; a value that does not exist yet is null; the same on stdout."""
    write(PrintedJsonLogger(tmp_path))
    write(JsonlLogger(tmp_path / "new" / "folder"))
    lines = (tmp_path / "new" / "folder" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line, parse_constant=pytest.fail) for line in lines] == [
        {"kind": "train", "step": 8, "mean_reward": None, "loss": 0.5},
        {"kind": "eval", "step": 8, "mean_reward": 12.0},
        {"kind": "train", "step": 16, "mean_reward": 3.25, "loss": 0.25},
    ]
    assert capsys.readouterr().out.splitlines() == lines


def test_jsonl_rewinds_to_the_end_of_an_iteration(tmp_path):
    """Evaluations during it are kept, those after it and half a line are not."""
    logger = JsonlLogger(tmp_path)
    for step in (8, 16, 24):
        logger.on_eval(step, {"mean_reward": 1.0})
        logger.on_train_step(step, {"loss": 0.5})
    logger.on_eval(16, {"mean_reward": 2.0})
    logger.close()
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text()[:-5])
    resumed = JsonlLogger(tmp_path)
    resumed.rewind(16)
    resumed.on_train_step(24, {"loss": 0.25})
    resumed.close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["kind"], row["step"]) for row in rows] == [
        ("eval", 8), ("train", 8), ("eval", 16), ("train", 16), ("train", 24),
    ]  # fmt: skip


def test_rows_are_on_disk_before_close(tmp_path):
    """A crash loses no row that was logged."""
    logger = JsonlLogger(tmp_path)
    logger.on_train_step(8, {"loss": 0.5})
    assert (tmp_path / "metrics.jsonl").read_text().endswith("}\n")
    logger.close()


@pytest.mark.parametrize("line", [b"\xff\n", b"{\n", b"3\n", b'{"step": "x", "kind": "train"}\n'])
def test_a_damaged_line_is_named_and_nothing_is_cut(tmp_path, line):
    """The file is as it was, whatever follows the line."""
    path = tmp_path / "metrics.jsonl"
    whole = b'{"kind": "train", "step": 8}\n' + line + b'{"kind": "train", "step": 16}\n'
    path.write_bytes(whole)
    logger = JsonlLogger(tmp_path)
    with pytest.raises(LoggerError, match=r"metrics.jsonl' is damaged in line 2: .* move it away"):
        logger.rewind(16)
    logger.close()
    assert path.read_bytes() == whole


def test_a_folder_in_the_place_of_the_file_is_named(tmp_path):
    """Before any training."""
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(LoggerError, match=r"metrics.jsonl' must be a file, not a folder"):
        JsonlLogger(tmp_path)
