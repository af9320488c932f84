"""The examples on batched envs learn what they say, in few iterations."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cart_pole_balances() -> None:
    """The mean return of 64 steps rises above -20; untrained it is -59, or -80 with the mode."""
    assert example("rl8_cartpole").main(steps=10) > -20


def test_mountain_car_leaves_the_valley() -> None:
    """The mean return of 128 steps rises above 0; at rest in the valley it is -128."""
    assert example("rl8_mountain_car").main(steps=12) > 0


def test_pendulum_swings_up() -> None:
    """The mean return of 128 steps rises above -400; at first it is -800."""
    assert example("rl8_pendulum").main(steps=12) > -400


@pytest.mark.parametrize("kind", ["mlp", "transformer", "lstm"])
def test_trading_earns(kind: str) -> None:
    """More than 0.08 in 32 steps; who always holds the asset earns 0 in the mean, without fees."""
    assert example("rl8_trading").main(kind, steps=20) > 0.08


def test_equations_of_the_envs() -> None:
    """By hand: a car at rest in the valley at -π/6 stays, and a rod at rest upright does."""
    car = example("rl8_mountain_car").MountainCar(1)
    car.reset(config={"left": -torch.pi / 6, "right": -torch.pi / 6})
    for _ in range(10):
        out = car.step(torch.ones(1, 1, dtype=torch.int64))
    assert out["rewards"].item() == pytest.approx(-1, abs=1e-5)
    assert car.step(torch.full((1, 1), 2))["obs"][0, 1].item() == pytest.approx(0.001 / 0.07, 1e-3)
    rod = example("rl8_pendulum").Pendulum(1)
    rod.state = torch.zeros(1, 2)
    assert rod.step(torch.zeros(1, 1))["rewards"].item() == 0
    assert rod.step(torch.full((1, 1), 9.0))["rewards"].item() == pytest.approx(-0.004)
    assert rod.state[0, 1].item() == pytest.approx(0.05 * 3 * 2)


def test_masked_trades_change_nothing() -> None:
    """Who holds money cannot sell, and a fee is paid for each trade alone."""
    trading = example("rl8_trading")
    env = trading.Trading(3)
    assert env.reset()["mask"].tolist() == [[True, True, False]] * 3
    out = env.step(torch.tensor([[trading.HOLD], [trading.BUY], [trading.SELL]]))
    assert out["obs", "held"].flatten().tolist() == [0, 1, 0]
    assert out["obs", "mask"][1].tolist() == [True, False, True]
    paid = out["rewards"][1] - trading.NOISE * out["obs", "change"][1]
    assert paid.item() == pytest.approx(-trading.FEE, abs=1e-6)
    assert out["rewards"][[0, 2]].abs().max() == 0
