"""What the tests of all loggers log."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rlox.logging import LoggerCallback


@pytest.fixture
def write() -> Callable[[LoggerCallback], None]:
    """Return a function that logs two rounds and an evaluation, then closes."""

    def write(logger: LoggerCallback) -> None:
        logger.on_train_step(8, {"mean_reward": float("nan"), "loss": 0.5})
        logger.on_eval(8, {"mean_reward": 12.0})
        logger.on_train_step(16, {"mean_reward": 3.25, "loss": 0.25})
        logger.close()

    return write
