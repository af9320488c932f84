"""The single env against gymnasium's, and its errors."""

import gymnasium as gym
import numpy as np
import pytest
from rlox_native import CartPole

SEEDS = range(1_000)
STEPS = 500


def test_trajectories_equal_gymnasium_bit_for_bit():
    """1,000 seeds of 500 steps each, resets included, give gymnasium's bytes."""
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


def balance(obs: np.ndarray) -> int:
    """Push towards where the pole falls: enough to balance for 500 steps."""
    return int(obs[2] + obs[3] > 0)


def test_episode_is_truncated_at_step_500():
    """A balanced pole is cut at gymnasium's time limit, and nothing terminates it before."""
    env = CartPole(seed=3)
    reference = gym.make("CartPole-v1")
    obs, _ = reference.reset(seed=3)
    env.reset()
    for step in range(1, 501):
        got = env.step(balance(obs))
        obs, _, terminated, truncated, _ = reference.step(balance(obs))
        assert got["obs"].tobytes() == obs.tobytes()
        assert (got["terminated"], got["truncated"]) == (terminated, truncated)
        assert (terminated, truncated) == (False, step == 500)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1, np.int64(7)])
def test_every_seed_equals_gymnasium(seed):
    """Seeds of one and of two words start as gymnasium's do."""
    expected, _ = gym.make("CartPole-v1").reset(seed=int(seed))
    assert CartPole(seed=seed).reset().tobytes() == expected.tobytes()
    assert CartPole().reset(seed=seed).tobytes() == expected.tobytes()


def test_reset_with_seed_starts_the_stream_anew():
    """The same seed gives the same first observation at any time; no seed goes on."""
    env = CartPole(seed=1)
    first = env.reset()
    assert (env.reset() != first).any()
    np.testing.assert_array_equal(env.reset(seed=1), first)


def test_unseeded_envs_differ():
    """Without a seed the stream comes from the operating system."""
    assert (CartPole().reset() != CartPole().reset()).any()


def test_observations_do_not_share_memory():
    """A later step leaves an earlier observation as it was."""
    env = CartPole(seed=0)
    first = env.reset()
    copy = first.copy()
    env.step(0)
    np.testing.assert_array_equal(first, copy)
    assert first.dtype == np.float32
    assert first.shape == (4,)


def test_step_before_reset_is_refused():
    """A fresh env asks for reset()."""
    with pytest.raises(RuntimeError, match=r"not been reset; call reset\(\)"):
        CartPole(seed=0).step(0)


def test_step_after_the_end_is_refused():
    """An ended episode asks for reset(), and a reset is enough."""
    env = CartPole(seed=0)
    env.reset()
    while not env.step(0)["terminated"]:
        pass
    with pytest.raises(RuntimeError, match=r"episode has ended; call reset\(\)"):
        env.step(0)
    env.reset()
    env.step(0)


@pytest.mark.parametrize("action", [2, -1, 2**70, np.int64(5)])
def test_unknown_action_is_refused(action):
    """An action that does not exist is named."""
    env = CartPole(seed=0)
    env.reset()
    with pytest.raises(ValueError, match=f"action .*got {action}"):
        env.step(action)


@pytest.mark.parametrize("action", [0.0, "0", None, [0], np.float32(1)])
def test_action_that_is_no_integer_is_refused(action):
    """Only integers are actions."""
    env = CartPole(seed=0)
    env.reset()
    with pytest.raises(TypeError, match="action must be an integer, got"):
        env.step(action)


@pytest.mark.parametrize("seed", [-1, 2**64, 2**200])
def test_seed_out_of_range_is_refused(seed):
    """A seed is a non-negative integer of 64 bits."""
    for use in (CartPole, CartPole().reset):
        with pytest.raises(
            ValueError, match=rf"seed must lie in \[0, 18446744073709551615\], got {seed}"
        ):
            use(seed=seed)


@pytest.mark.parametrize("seed", [True, np.bool_(True), 1.0, "1", [1]])
def test_seed_that_is_no_integer_is_refused(seed):
    """Bools and floats are no seeds: they are mistakes."""
    with pytest.raises(TypeError, match="seed must be a non-negative integer or None, got"):
        CartPole(seed=seed)
