"""Tests of :mod:`rlox.logging.console`."""

from __future__ import annotations

import pytest
from rlox.logging import ConsoleLogger


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


def test_console_begins_again_with_another_training(capsys: pytest.CaptureFixture[str]) -> None:
    """Its steps begin again, and its lines with them."""
    logger = ConsoleLogger(log_interval=100)
    for step in (500, 1000, 8, 16, 108):
        logger.on_train_step(step, {})
    steps = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert steps == ["step=500", "step=1000", "step=8", "step=108"]
