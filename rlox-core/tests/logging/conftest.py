"""What the tests of all loggers log."""

import pytest


@pytest.fixture
def write():
    """Return a function that logs two rounds and an evaluation, then closes."""

    def write(logger):
        logger.on_train_step(8, {"mean_reward": float("nan"), "loss": 0.5})
        logger.on_eval(8, {"mean_reward": 12.0})
        logger.on_train_step(16, {"mean_reward": 3.25, "loss": 0.25})
        logger.close()

    return write
