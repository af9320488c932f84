"""Tests of :mod:`rlox.logging.tensorboard`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rlox.errors import MissingDependencyError
from rlox.logging import LoggerCallback, TensorBoardLogger

Write = Callable[[LoggerCallback], None]


def test_tensorboard_writes_scalars(tmp_path: Path, write: Write) -> None:
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


def test_tensorboard_ignores_what_was_rewound(tmp_path: Path, write: Write) -> None:
    """Readers of the folder see each env step once, as the resumed run logged it."""
    pytest.importorskip("torch")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write(TensorBoardLogger(tmp_path))
    logger = TensorBoardLogger(tmp_path)
    logger.rewind(8)
    logger.on_train_step(16, {"loss": 0.125})
    logger.close()
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(8, 0.5), (16, 0.125)]
    assert [e.step for e in events.Scalars("eval/mean_reward")] == [8]


def test_tensorboard_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the libraries the error says what to install."""
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingDependencyError) as caught:
        TensorBoardLogger("unused")
    assert str(caught.value) == (
        "TensorBoardLogger needs a distribution that is not installed; "
        'run: pip install "rlox-core[tensorboard]"'
    )
