"""Algorithms reach published scores: five seeds, 100 deterministic evaluation episodes each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rlox

ROOT = Path(__file__).parents[2]

TASKS: list[Any] = [
    pytest.param("ppo", "CartPole-v1", 100_000, 475.0, None, id="ppo-CartPole-v1"),
    pytest.param("ppo", "Acrobot-v1", 300_000, -100.0, None, id="ppo-Acrobot-v1"),
    pytest.param(
        "ppo", "Pendulum-v1", 300_000, -250.0, "examples/ppo-pendulum.yaml", id="ppo-Pendulum-v1"
    ),
    pytest.param("hybrid_ppo", "CartPole-v1", 100_000, 475.0, None, id="hybrid_ppo-CartPole-v1"),
    pytest.param(
        "ppo",
        "LunarLander-v3",
        1_000_000,
        200.0,
        "examples/ppo-lunar-lander.yaml",
        id="ppo-LunarLander-v3",
    ),
    pytest.param("rl8_ppo", "CartPole-v1", 300_000, 475.0, None, id="rl8_ppo-CartPole-v1"),
    pytest.param("a2c", "CartPole-v1", 500_000, 450.0, None, id="a2c-CartPole-v1"),
    pytest.param("appo", "CartPole-v1", 500_000, 475.0, None, id="appo-CartPole-v1"),
    pytest.param(
        "appo", "Pendulum-v1", 500_000, -300.0, "examples/appo-pendulum.yaml", id="appo-Pendulum-v1"
    ),
    pytest.param(
        "impala",
        "CartPole-v1",
        500_000,
        475.0,
        "examples/impala-cartpole.yaml",
        id="impala-CartPole-v1",
    ),
    pytest.param(
        "impala",
        "Acrobot-v1",
        500_000,
        -100.0,
        "examples/impala-acrobot.yaml",
        id="impala-Acrobot-v1",
    ),
    pytest.param(
        "dqn", "CartPole-v1", 50_000, 475.0, "examples/dqn-cartpole.yaml", id="dqn-CartPole-v1"
    ),
    pytest.param(
        "dqn",
        "CartPole-v1",
        50_000,
        475.0,
        "examples/rainbow-cartpole.yaml",
        id="dqn-CartPole-v1-rainbow",
    ),
    pytest.param(
        "dqn",
        "MountainCar-v0",
        120_000,
        -115.0,
        "examples/dqn-mountain-car.yaml",
        id="dqn-MountainCar-v0",
    ),
    pytest.param(
        "discrete_sac",
        "CartPole-v1",
        50_000,
        475.0,
        "examples/discrete-sac-cartpole.yaml",
        id="discrete_sac-CartPole-v1",
    ),
    pytest.param(
        "sac", "Pendulum-v1", 20_000, -200.0, "examples/sac-pendulum.yaml", id="sac-Pendulum-v1"
    ),
    pytest.param(
        "sac",
        "MountainCarContinuous-v0",
        50_000,
        90.0,
        "examples/sac-mountain-car-continuous.yaml",
        id="sac-MountainCarContinuous-v0",
    ),
    pytest.param(
        "crossq",
        "Pendulum-v1",
        20_000,
        -200.0,
        "examples/crossq-pendulum.yaml",
        id="crossq-Pendulum-v1",
    ),
    pytest.param(
        "td3", "Pendulum-v1", 20_000, -200.0, "examples/td3-pendulum.yaml", id="td3-Pendulum-v1"
    ),
    pytest.param(
        "ddpg", "Pendulum-v1", 20_000, -200.0, "examples/ddpg-pendulum.yaml", id="ddpg-Pendulum-v1"
    ),
    pytest.param(
        "mappo",
        "mpe2/simple_spread_v3",
        600_000,
        -13.0,
        "examples/mappo-simple-spread.yaml",
        id="mappo-simple_spread_v3",
    ),
    pytest.param(
        "ippo",
        "mpe2/simple_spread_v3",
        600_000,
        -13.0,
        "examples/mappo-simple-spread.yaml",
        id="ippo-simple_spread_v3",
    ),
]


@pytest.mark.learn
@pytest.mark.parametrize(("name", "env_id", "env_steps", "threshold", "config"), TASKS)
def test_every_seed_reaches_the_threshold(
    request: Any,
    score_seeds: Callable[..., list[float]],
    name: str,
    env_id: str,
    env_steps: int,
    threshold: float,
    config: str | None,
) -> None:
    """The worst of five seeds passes; scores and seconds go to ``scores/``."""

    def make(seed: int) -> rlox.Algorithm:
        return rlox.make(name, env=env_id, seed=seed, config=config and ROOT / config)

    label = request.node.callspec.id
    assert min(score_seeds(make, label, env_steps, threshold)) >= threshold


@pytest.mark.learn
def test_a_team_learns_through_pettingzoo(score_seeds: Callable[..., list[float]]) -> None:
    """MAPPO passes -18 in every seed on mpe2's env, after a third of the native env's steps."""
    pytest.importorskip("mpe2")

    def make(seed: int) -> rlox.Algorithm:
        config = ROOT / "examples/mappo-simple-spread.yaml"
        env = "mpe2/simple_spread_v3"
        return rlox.make("mappo", env=env, seed=seed, config=config, env_backend="pettingzoo")

    label = "mappo-simple_spread_v3-through-mpe2"
    assert min(score_seeds(make, label, 200_000, -18.0)) >= -18.0
