"""The env backend over EnvPool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from rlox.envs import make_vec_env
from rlox.envs.make import choose_backend
from rlox.errors import EnvError
from rlox.testing import check_env_backend

pytest.importorskip("envpool")


@pytest.fixture(name="envs")
def fixture_envs() -> Iterator[Any]:
    """Return three cart-poles."""
    envs = make_vec_env("CartPole-v1", n_envs=3, backend="envpool")
    yield envs
    envs.close()


def test_the_backend_keeps_the_contract() -> None:
    """The contract of every env backend."""
    check_env_backend("envpool", "CartPole-v1")


def test_episodes_end_in_the_step_that_ends_them(envs: Any) -> None:
    """A step returns the true last observation and the first of the next episode."""
    seen = envs.reset_all(seed=1)
    lengths, ended = np.zeros(3, np.int64), 0
    for _ in range(200):
        step = envs.step_all(np.ones(3, np.int64))
        lengths += 1
        over = step["terminated"] | step["truncated"]
        for i in np.flatnonzero(over):
            ended += 1
            # pushed to one side, a pole falls past 12 degrees within 8 to 11 steps
            assert 7 <= lengths[i] <= 12
            assert abs(step["final_obs"][i, 2]) > 0.2095 > abs(seen[i, 2])
            assert (np.abs(step["obs"][i]) <= 0.05).all()
            lengths[i] = 0
        assert np.array_equal(step["obs"][~over], step["final_obs"][~over])
        seen = step["obs"]
    assert ended > 30


def test_truncation_is_no_termination() -> None:
    """EnvPool's own step limit truncates an episode."""
    envs = make_vec_env(
        "Pendulum-v1", n_envs=2, backend="envpool", env_kwargs={"max_episode_steps": 5}
    )
    envs.reset_all(seed=0)
    steps = [envs.step_all(np.zeros((2, 1), np.float32)) for _ in range(5)]
    assert [step["truncated"].tolist() for step in steps] == [[False] * 2] * 4 + [[True] * 2]
    assert not any(step["terminated"].any() for step in steps)
    envs.close()


def test_a_seed_fixes_the_episodes(envs: Any) -> None:
    """Copy i of a seed s is copy 0 of the seed s + i."""
    first = envs.reset_all(seed=5)
    assert np.array_equal(envs.reset_all(seed=5), first)
    assert not np.array_equal(envs.reset_all(seed=6), first)
    assert np.array_equal(envs.reset_all(seed=6)[0], first[1])
    assert np.array_equal(envs.reset_all(seed=[7, 6, 5])[::-1], first)


def test_physics_are_those_of_gymnasium() -> None:
    """A step of the half cheetah from its own first state."""
    envs = make_vec_env("HalfCheetah-v5", n_envs=1, backend="envpool")
    theirs = gymnasium.make("HalfCheetah-v5")
    theirs.reset(seed=0)
    obs = envs.reset_all(seed=3)
    rng = np.random.default_rng(0)
    state = theirs.unwrapped
    state.set_state(np.concatenate([[0.0], obs[0, :8]]), obs[0, 8:])
    for _ in range(3):
        action = rng.uniform(-1, 1, (1, 6)).astype(np.float32)
        step = envs.step_all(action)
        expected, reward, *_ = theirs.step(action[0])
        np.testing.assert_allclose(step["obs"][0], expected, rtol=1e-6, atol=1e-8)
        # the position that the speed is measured from is not observed
        assert step["rewards"][0] == pytest.approx(reward, rel=1e-4)
    envs.close()


@pytest.mark.parametrize(
    ("env_id", "arguments", "message"),
    [
        ("CartPol-v1", {}, "EnvPool has no 'CartPol-v1'; did you mean 'CartPole-v1'"),
        ("CartPole-v1", {"gravitation": 3}, "cannot be built by EnvPool with"),
    ],
)
def test_wrong_envs_are_named(env_id: str, arguments: Any, message: str) -> None:
    """The errors come before anything runs."""
    with pytest.raises(EnvError, match=message):
        make_vec_env(env_id, n_envs=1, backend="envpool", env_kwargs=arguments)


def test_nothing_takes_it_unasked() -> None:
    """``auto`` takes the envs that gymnasium defines."""
    chosen, _ = choose_backend("HalfCheetah-v5")
    assert chosen.spec.name != "envpool"
    with pytest.raises(EnvError, match="after reset_all"):
        make_vec_env("CartPole-v1", backend="envpool").step_all(np.zeros(1, np.int64))
