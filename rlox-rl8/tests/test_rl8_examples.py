"""The examples on batched envs learn their tasks in few iterations."""

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name):
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cart_pole_balances():
    """The mean return of 64 steps rises above -20; untrained it is -59, or -80 with the mode."""
    assert example("rl8_cartpole").main(steps=10) > -20


def test_mountain_car_leaves_the_valley():
    """The mean return of 128 steps rises above 0; at rest in the valley it is -128."""
    assert example("rl8_mountain_car").main(steps=12) > 0


def test_pendulum_swings_up():
    """The mean return of 128 steps rises above -400; at first it is -800."""
    assert example("rl8_pendulum").main(steps=12) > -400


@pytest.mark.parametrize("kind", ["mlp", "transformer", "lstm"])
def test_trading_earns(kind):
    """More than 0.08 in 32 steps; always holding the asset earns 0 in the mean, without fees."""
    assert example("rl8_trading").main(kind, steps=20) > 0.08
