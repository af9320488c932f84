"""Tests of :mod:`rlox.callbacks.progress`."""

from __future__ import annotations

from types import ModuleType

import pytest
from rlox.callbacks import ProgressCallback


def test_progress_bar_opens_and_closes(
    counting: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bar shows the env steps done and leaves the terminal as it was."""
    counting.CountingAlgorithm("CartPole-v1", callbacks=[ProgressCallback()]).train(16)
    assert "counting" in capsys.readouterr().out


def test_progress_bar_closes_after_an_error(counting: ModuleType) -> None:
    """A failing training leaves no live display behind."""
    callback = ProgressCallback()
    algorithm = counting.CountingAlgorithm("CartPole-v1", callbacks=[callback])
    algorithm.fail_at = 1
    with pytest.raises(ArithmeticError):
        algorithm.train(16)
    algorithm.fail_at = None
    algorithm.train(16)
