"""Tests of :mod:`rlox.analysis.run_logs`."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rlox.analysis import SampledLog
from rlox.analysis import run_logs as module
from rlox.logging import CsvLogger, JsonlLogger


def write(folder: Path, steps: range, every: int = 1000) -> None:
    """Append rows whose loss is their step, and evaluations whose return is theirs."""
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        for step in steps:
            row: dict[str, Any] = {"kind": "train", "step": step, "loss": float(step)}
            file.write(json.dumps(row) + "\n")
            if step % every == 0:
                evaluation = {"kind": "eval", "step": step, "mean_reward": float(-step)}
                file.write(json.dumps(evaluation) + "\n")


def values(log: SampledLog, metric: str) -> dict[int, float | None]:
    """Return a metric by step."""
    rows, name = log.rows(metric)
    return {row.step: row.get(name) for row in rows}


def scan(log: SampledLog) -> None:
    """Find all evaluations."""
    while not log.scanned:
        log.scan()


@pytest.mark.parametrize("logger", [JsonlLogger, CsvLogger])
def test_short_log_is_read_whole_and_followed(tmp_path: Path, logger: Any) -> None:
    """Row by row, from either logger; NaN is no value."""
    log = SampledLog(tmp_path)
    assert not log.refresh()  # there is none yet
    writer = logger(tmp_path)
    writer.on_train_step(10, {"loss": 4.0, "mean_reward": float("nan")})
    writer.on_eval(10, {"mean_reward": 7.0})
    assert log.refresh()
    assert values(log, "loss") == {10: 4.0}
    assert values(log, "mean_reward") == {10: None}
    assert values(log, "eval/mean_reward") == {10: 7.0}
    assert not log.refresh()
    writer.on_train_step(20, {"loss": 3.0, "mean_reward": 1.0})
    assert log.refresh()
    assert values(log, "loss") == {10: 4.0, 20: 3.0}
    assert log.metrics[-1] == "eval/mean_reward"
    writer.close()


def test_long_log_is_sampled_evenly_from_first_to_last(tmp_path: Path) -> None:
    """No more rows than asked for, all of them true; every evaluation is found."""
    write(tmp_path, range(1, 20_001))
    log = SampledLog(tmp_path, points=100)
    assert log.refresh()
    found = values(log, "loss")
    assert 90 <= len(found) <= 108
    assert all(value == step for step, value in found.items())
    steps = sorted(found)
    assert (steps[0], steps[-1]) == (1, 20_000)
    gaps = [b - a for a, b in itertools.pairwise(steps)]
    assert max(gaps) < 500
    scan(log)
    assert values(log, "eval/mean_reward") == {s: -s for s in range(1000, 20_001, 1000)}


def test_sampled_log_is_followed_row_by_row(tmp_path: Path) -> None:
    """Only what was appended is read."""
    write(tmp_path, range(1, 20_001))
    log = SampledLog(tmp_path, points=100)
    log.refresh()
    write(tmp_path, range(20_001, 20_004))
    assert log.refresh()
    assert list(values(log, "loss"))[-3:] == [20_001, 20_002, 20_003]
    write(tmp_path, range(20_004, 40_001))
    log.refresh()
    assert len(log.train) <= 200
    assert log.train[-1].step == 40_000
    assert log.train[0].step == 1
    scan(log)
    assert len(log.evaluations) == 40


def test_half_a_row_waits_for_its_end(tmp_path: Path) -> None:
    """As one that is being written."""
    write(tmp_path, range(1, 3))
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"kind": "train", "step": 3,')
    log = SampledLog(tmp_path)
    log.refresh()
    assert list(values(log, "loss")) == [1, 2]
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(' "loss": 3.0}\n')
    log.refresh()
    assert list(values(log, "loss")) == [1, 2, 3]


def test_log_that_was_cut_or_replaced_is_read_again(tmp_path: Path) -> None:
    """As resuming an interrupted run does."""
    write(tmp_path, range(1, 11))
    log = SampledLog(tmp_path)
    log.refresh()
    path = tmp_path / "metrics.jsonl"
    os.truncate(path, path.read_bytes().index(b'{"kind": "train", "step": 6'))
    assert log.refresh()
    assert list(values(log, "loss")) == [1, 2, 3, 4, 5]
    assert log.generation == 1
    (tmp_path / "new").mkdir()
    write(tmp_path / "new", range(100, 120))
    (tmp_path / "new" / "metrics.jsonl").replace(path)
    assert log.refresh()
    assert log.train[0].step == 100


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    """Whatever they hold."""
    lines = [
        b"\xff\xfe", b"[1]", b"{}", b"null", b'{"kind": "train", "step": "x"}',
        b'{"kind": "train", "step": 1e999}', b"[" * 100_000,
        b'{"kind": "train", "step": 7, "loss": 1.0, "bad": "text", "huge": Infinity}',
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    log = SampledLog(tmp_path)
    log.refresh()
    assert [(row.step, row.names) for row in log.train] == [(7, ("loss",))]


def test_row_that_is_too_long_is_left_out(tmp_path: Path) -> None:
    """Of a long log no more than a bounded part is read for a row."""
    path = tmp_path / "metrics.jsonl"
    huge = json.dumps({"kind": "train", "step": 1, "loss": 1.0, "text": "x" * 4 * module.LONGEST})
    path.write_text(huge + "\n", encoding="utf-8")
    write(tmp_path, range(2, 5_000))
    log = SampledLog(tmp_path, points=50)
    log.refresh()
    assert log.train[-1].step == 4_999
    assert len(log.train) <= 100


def test_link_in_a_run_is_not_followed(tmp_path: Path) -> None:
    """It may lead to a file of the reader."""
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere", range(1, 5))
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").symlink_to(tmp_path / "elsewhere" / "metrics.jsonl")
    log = SampledLog(run)
    with pytest.raises(OSError, match="no plain file"):
        log.refresh()
    assert log.train == []
