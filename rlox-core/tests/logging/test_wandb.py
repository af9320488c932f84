"""Tests of :class:`rlox.logging.WandbLogger`, offline; the run's file is read back."""

import importlib.util
import json
import struct
import time

import numpy as np
import pytest
from rlox.errors import LoggerError
from rlox.logging import WandbLogger
from rlox.testing import check_logger

needs_wandb = pytest.mark.skipif(not importlib.util.find_spec("wandb"), reason="needs wandb")

FILE_HEADER, RECORD_HEADER, BLOCK = 7, 7, 32768
"""Of a run's file, in bytes: LevelDB's log format behind a header of its own."""

RUN_FILES = "wandb/offline-run-*/run-*.wandb"

LAST_PARTS = (1, 4)
"""The kinds of parts that end a record: the whole of one, and the last of several."""


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    """Keep the library from the network and from the terminal."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")


def records(folder, seconds=120.0):
    """Return the records of the one run in a folder, once the library's process wrote the last."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = [record for path in folder.glob(RUN_FILES) for record in written(path)]
        if any(record.HasField("exit") for record in found):
            return found
        time.sleep(0.05)
    raise TimeoutError(f"the run in {folder} was not finished")


def written(path):
    """Yield the records that are in a run's file so far."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, parts = path.read_bytes(), FILE_HEADER, b""
    while position + RECORD_HEADER <= len(data):
        left = BLOCK - position % BLOCK
        if left < RECORD_HEADER:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        position += RECORD_HEADER
        if position + length > len(data):
            return  # being written
        parts += data[position : position + length]
        position += length
        if kind in LAST_PARTS:
            yield Record.FromString(parts)
            parts = b""


def rows(folder):
    """Return what was logged, without the library's own entries."""
    found = []
    for record in records(folder):
        if record.HasField("history"):
            items = {
                item.key or item.nested_key[0]: json.loads(item.value_json)
                for item in record.history.item
            }
            found.append({key: value for key, value in items.items() if key[0] != "_"})
    return found


@needs_wandb
def test_rows_are_in_the_runs_file(tmp_path, write):
    """Every finite value under its kind, with its env step; the caller names and describes it."""
    write(WandbLogger("cart", dir=str(tmp_path), name="first", config={"gamma": 0.98}))
    assert rows(tmp_path) == [
        {"global_step": 8, "train/loss": 0.5},
        {"global_step": 8, "eval/mean_reward": 12.0},
        {"global_step": 16, "train/mean_reward": 3.25, "train/loss": 0.25},
    ]
    found = records(tmp_path)
    # the library may repeat the record while the run goes on
    run = next(record.run for record in found if record.HasField("run"))
    assert (run.project, run.display_name) == ("cart", "first")
    assert {item.key: item.value_json for item in run.config.update}["gamma"] == "0.98"
    metrics = [record.metric for record in found if record.HasField("metric")]
    assert "global_step" in {metric.step_metric for metric in metrics}


@needs_wandb
def test_videos_are_in_the_runs_files(tmp_path):
    """A GIF with the frames and their pace, at its env step."""
    image = pytest.importorskip("PIL.Image")
    frames = np.stack([np.full((4, 6, 3), shade, np.uint8) for shade in (0, 100, 200)])
    logger = WandbLogger(dir=str(tmp_path))
    logger.on_video(8, "model", frames, 10.0)
    logger.close()
    logged = [record.history.item for record in records(tmp_path) if record.HasField("history")]
    row = {tuple(x.nested_key) or x.key: json.loads(x.value_json) for x in logged[0]}
    assert row[("global_step",)] == 8
    assert row["videos/model", "_type"] == "video-file"
    [path] = tmp_path.glob(f"wandb/offline-run-*/files/{row['videos/model', 'path']}")
    with image.open(path) as video:
        assert (video.n_frames, video.size) == (3, (6, 4))
        assert video.info["duration"] == 100


@needs_wandb
def test_two_loggers_are_two_runs(tmp_path):
    """A second training in the process does not write into the first one's run."""
    loggers = [
        WandbLogger(dir=str(tmp_path / name)) for name in "ab" if not (tmp_path / name).mkdir()
    ]
    for step, logger in enumerate(loggers):
        logger.on_train_step(step, {"loss": 0.5})
        logger.close()
    for step, name in enumerate("ab"):
        assert [row["global_step"] for row in rows(tmp_path / name)] == [step]


@needs_wandb
def test_logger_by_name_keeps_the_contract():
    """It builds from a folder that does not exist yet, and is closed twice."""
    check_logger("wandb")


@needs_wandb
def test_a_run_that_does_not_begin_is_reported(monkeypatch):
    """The library's own words, as an error that the command line shows in one line."""
    import wandb

    def init(**arguments):
        raise wandb.errors.UsageError("api_key not configured (no-tty)")

    monkeypatch.setattr(wandb, "init", init)
    with pytest.raises(LoggerError, match=r"^wandb begins no run: api_key not configured"):
        WandbLogger()
