"""Algorithms reach published scores: five seeds, 100 deterministic evaluation episodes each."""

from functools import partial
from pathlib import Path

import pytest
import rlox

ROOT = Path(__file__).parents[2]

TASKS = [
    ("ppo", "CartPole-v1", 100_000, 475.0, None),
    ("ppo", "Acrobot-v1", 300_000, -100.0, None),
    ("ppo", "Pendulum-v1", 300_000, -250.0, "ppo-pendulum"),
    ("hybrid_ppo", "CartPole-v1", 100_000, 475.0, None),
    ("ppo", "LunarLander-v3", 1_000_000, 200.0, "ppo-lunar-lander"),
    ("rl8_ppo", "CartPole-v1", 300_000, 475.0, None),
    ("a2c", "CartPole-v1", 500_000, 450.0, None),
    ("appo", "CartPole-v1", 500_000, 475.0, None),
    ("appo", "Pendulum-v1", 500_000, -300.0, "appo-pendulum"),
    ("impala", "CartPole-v1", 500_000, 475.0, "impala-cartpole"),
    ("impala", "Acrobot-v1", 500_000, -100.0, "impala-acrobot"),
    ("dqn", "CartPole-v1", 50_000, 475.0, "dqn-cartpole"),
    ("dqn", "CartPole-v1", 50_000, 475.0, "rainbow-cartpole"),
    ("dqn", "MountainCar-v0", 120_000, -115.0, "dqn-mountain-car"),
    ("discrete_sac", "CartPole-v1", 50_000, 475.0, "discrete-sac-cartpole"),
    ("sac", "Pendulum-v1", 20_000, -200.0, "sac-pendulum"),
    ("sac", "MountainCarContinuous-v0", 50_000, 90.0, "sac-mountain-car-continuous"),
    ("crossq", "Pendulum-v1", 20_000, -200.0, "crossq-pendulum"),
    ("td3", "Pendulum-v1", 20_000, -200.0, "td3-pendulum"),
    ("ddpg", "Pendulum-v1", 20_000, -200.0, "ddpg-pendulum"),
    ("mappo", "mpe2/simple_spread_v3", 600_000, -13.0, "mappo-simple-spread"),
    ("ippo", "mpe2/simple_spread_v3", 600_000, -13.0, "mappo-simple-spread"),
]
"""Algorithm, env, env steps, threshold, and the file of options among the examples."""


def label_of(name, env_id, config):
    """Return what the file of the scores is called."""
    rainbow = "-rainbow" if config == "rainbow-cartpole" else ""
    return f"{name}-{env_id.rpartition('/')[2]}{rainbow}"


@pytest.mark.learn
@pytest.mark.parametrize(
    ("name", "env_id", "env_steps", "threshold", "config"),
    [pytest.param(*task, id=label_of(task[0], task[1], task[4])) for task in TASKS],
)
def test_every_seed_reaches_the_threshold(score_seeds, name, env_id, env_steps, threshold, config):
    """The worst of five seeds passes; scores and seconds go to ``scores/``."""
    options = config and ROOT / f"examples/{config}.yaml"
    make = partial(rlox.make, name, env=env_id, config=options)
    label = label_of(name, env_id, config)
    assert min(score_seeds(make, label, env_steps, threshold)) >= threshold


@pytest.mark.learn
def test_a_team_learns_through_pettingzoo(score_seeds):
    """MAPPO passes -18 in every seed on mpe2's env, after a third of the native env's steps."""
    pytest.importorskip("mpe2")

    config = ROOT / "examples/mappo-simple-spread.yaml"
    env = "mpe2/simple_spread_v3"
    make = partial(rlox.make, "mappo", env=env, config=config, env_backend="pettingzoo")
    label = "mappo-simple_spread_v3-through-mpe2"
    assert min(score_seeds(make, label, 200_000, -18.0)) >= -18.0
