"""The single env against gymnasium's, and its errors."""

import gymnasium as gym
import numpy as np
import pytest
from rlox_native import CartPole

SEEDS = range(20)
STEPS = 500


def test_trajectories_equal_gymnasium_bit_for_bit():
    """20 seeds of 500 steps each, including resets, give gymnasium's bytes."""
    reference = gym.make("CartPole-v1")
    for seed in SEEDS:
        env = CartPole(seed=seed)
        np.testing.assert_array_equal(env.reset(), reference.reset(seed=seed)[0], strict=True)
        for action in np.random.default_rng(seed).integers(0, 2, STEPS).tolist():
            got = env.step(action)
            obs, reward, terminated, truncated, _ = reference.step(action)
            assert got["obs"].tobytes() == obs.tobytes(), f"seed {seed}"
            assert got["reward"] == reward
            assert (got["terminated"], got["truncated"]) == (terminated, truncated)
            if terminated or truncated:
                assert env.reset().tobytes() == reference.reset()[0].tobytes(), f"seed {seed}"


@pytest.mark.parametrize("seed", [0, 2**32 - 1, 2**32, 2**64 - 1, np.int64(7)])
def test_every_seed_equals_gymnasium(seed):
    """Seeds of one and of two words give gymnasium's first observations."""
    expected, _ = gym.make("CartPole-v1").reset(seed=int(seed))
    assert CartPole(seed=seed).reset().tobytes() == expected.tobytes()
    assert CartPole().reset(seed=seed).tobytes() == expected.tobytes()


def test_step_before_reset_is_refused():
    """The error of a new env asks for reset()."""
    with pytest.raises(RuntimeError, match=r"not been reset; call reset\(\)"):
        CartPole(seed=0).step(0)


def test_step_after_the_end_is_refused():
    """The error after an episode asks for reset(), and a reset suffices."""
    env = CartPole(seed=0)
    env.reset()
    while not env.step(0)["terminated"]:
        pass
    with pytest.raises(RuntimeError, match=r"episode has ended; call reset\(\)"):
        env.step(0)
    env.reset()
    env.step(0)


@pytest.mark.parametrize("action", [2, -1, 2**70])
def test_unknown_action_is_refused(action):
    """The error names the action."""
    env = CartPole(seed=0)
    env.reset()
    with pytest.raises(ValueError, match=f"action .*got {action}"):
        env.step(action)


@pytest.mark.parametrize("action", [0.0, None])
def test_action_that_is_no_integer_is_refused(action):
    """Only integers are actions."""
    env = CartPole(seed=0)
    env.reset()
    with pytest.raises(TypeError, match="action must be an integer, got"):
        env.step(action)
