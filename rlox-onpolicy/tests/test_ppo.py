"""PPO as a whole: its inputs, its metrics, its errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from rlox.errors import ConfigError
from rlox.training.loop import run_iteration
from rlox_onpolicy.ppo import PPO

SMALL = {"n_envs": 2, "n_steps": 16, "batch_size": 16, "n_epochs": 2}


def make(env: Any = "CartPole-v1", **options: Any) -> PPO:
    """Return a small PPO over gymnasium envs."""
    return PPO(env, **{**SMALL, "env_backend": "gymnasium", **options})


def test_iterations_of_ones_own_need_an_end_of_the_schedules() -> None:
    """A linear schedule needs a running training with an end; otherwise all rounds learn."""
    ppo = make(learning_rate="linear(1e-3, 0)")
    with pytest.raises(
        ConfigError, match=r"^learning_rate=linear\(0.001, 0.0\) goes on to the end"
    ):
        run_iteration(ppo)
    assert ppo.clock.env_steps == 0
    ppo.clock.extend(64)
    rates = [run_iteration(ppo)["learning_rate"] for _ in range(2)]
    assert rates == pytest.approx([1e-3, 5e-4])
    with pytest.raises(ConfigError, match="none runs"):
        run_iteration(ppo)


def test_a_schedule_may_be_a_callable() -> None:
    """``schedules`` wins over the config."""
    assert make(schedules={"learning_rate": lambda step: 0.5}).train(32)["learning_rate"] == 0.5


def test_target_kl_stops_the_epochs() -> None:
    """A tiny target leaves fewer optimiser steps than the epochs would take."""
    ppo = make(target_kl=1e-9, learning_rate=0.1, n_epochs=8)
    ppo.train(32)
    assert 0 < ppo.clock.gradient_steps < 8 * 2


def test_predict_stays_within_asymmetric_bounds() -> None:
    """Sampled actions are clipped to the action space, dimension by dimension."""

    class Bounded(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-1, 1, (3,))
        action_space = gymnasium.spaces.Box(np.float32([0.0, -0.1]), np.float32([0.05, 3.0]))

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.zeros(3, np.float32), {}

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action)
            return np.zeros(3, np.float32), 0.0, False, False, {}

    ppo = PPO(Bounded, **SMALL)
    ppo.train(32)
    actions = ppo.predict(np.zeros((100, 3)), deterministic=False)
    assert all(ppo.collector.env.action_space.contains(action) for action in actions)


def test_a_vector_env_trains_with_its_own_number_of_envs() -> None:
    """``n_envs`` follows the size of a gymnasium vector env."""
    env = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    ppo = PPO(env, n_steps=16, batch_size=16)
    assert ppo.collector.env.n_envs == ppo.config.n_envs == 3


def test_batch_size_is_checked_against_the_real_number_of_envs() -> None:
    """A single env's rollout may be too short for the chosen minibatch."""
    with pytest.raises(ConfigError, match="batch_size 256 exceeds"):
        PPO(gymnasium.make("CartPole-v1"), n_steps=32, batch_size=256)
    assert PPO(gymnasium.make("CartPole-v1"), n_steps=32).config.batch_size == 32


def test_batch_size_left_out_fits_a_small_rollout(tmp_path: Path) -> None:
    """Config and checkpoint hold the rollout's size; a longer rollout uses the default."""
    ppo = PPO("CartPole-v1", n_envs=2, n_steps=32, n_epochs=2)
    assert ppo.config.batch_size == 64
    ppo.train(128)
    assert ppo.clock.gradient_steps == 4
    ppo.save(tmp_path / "ppo.safetensors")
    assert PPO.from_checkpoint(tmp_path / "ppo.safetensors").config.batch_size == 64
    assert ppo.config.replace(n_steps=256).batch_size == 256


def test_a_single_env_keeps_the_rows_of_a_rollout() -> None:
    """By default one env takes as many steps as eight would together."""
    ppo = PPO(gymnasium.make("CartPole-v1"))
    assert (ppo.config.n_envs, ppo.config.n_steps) == (1, 1024)


def test_close_frees_the_envs_it_made_and_no_others():
    """Worker processes end; an env that the caller made stays usable."""
    ppo = make(vectorization="async", n_envs=2)
    ppo.train(32)
    pids = ppo.collector.env._processes.pids
    assert len(pids) == 2
    ppo.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    env = gymnasium.make("CartPole-v1")
    ppo = PPO(env, n_steps=32, batch_size=16)
    ppo.train(32)
    ppo.close()
    env.reset()
    env.step(0)
