"""Exploration: how often, how far, and how it goes on."""

import numpy as np
import pytest
from rlox.replay.exploration import EpsilonGreedy, GaussianNoise, OrnsteinUhlenbeckNoise

NO_STARTS = np.zeros(4, np.bool_)


def rng(seed=0):
    """Return a random stream."""
    return np.random.default_rng(seed)


def test_epsilon_greedy_explores_with_the_probability_of_the_step():
    """Of many greedy actions 0, a share ε (1 - 1/A) is replaced by another."""
    explore = EpsilonGreedy(lambda step: 0.3 if step == 7 else 0.0, 3, rng()).explore
    greedy, starts = np.zeros(100_000, np.int64), np.zeros(100_000, np.bool_)
    assert explore(greedy, starts, 6) is greedy
    taken = explore(greedy, starts, 7)
    assert set(taken) == {0, 1, 2}
    assert (taken != 0).mean() == pytest.approx(0.3 * 2 / 3, abs=0.005)


def test_one_env_explores_as_arrays_of_one_would():
    """With the same draws, so that a training does not depend on how they are made."""
    explore, stream = EpsilonGreedy(lambda step: 0.5, 3, rng()).explore, rng()
    greedy = np.zeros(1, np.int64)
    for _ in range(200):
        explores = stream.random(1)[0] < 0.5
        expected = stream.integers(3, size=1) if explores else greedy
        taken = explore(greedy, greedy == 0, 0)
        assert taken.dtype == np.int64
        np.testing.assert_array_equal(taken, expected)


def test_gaussian_noise_has_its_deviation():
    """In every dimension it is σ."""
    explore = GaussianNoise(0.1, rng()).explore
    zeros = np.zeros((100_000, 2), np.float32)
    noisy = explore(zeros, zeros[:, 0] > 0, 0)
    assert noisy.dtype == np.float32
    assert noisy.std(0) == pytest.approx([0.1, 0.1], rel=0.02)


def test_ornstein_uhlenbeck_noise_follows_its_recursion():
    """X ← x - θ x dt + σ √dt N, per env, from 0 at the start of an episode."""
    noise, draws = OrnsteinUhlenbeckNoise(0.5, rng(3), theta=0.2, dt=0.25), rng(3)
    zeros, expected = np.zeros((4, 1), np.float32), np.zeros((4, 1), np.float32)
    for step in range(20):
        starts = np.array([False, step == 5, False, step in (5, 11)])
        expected[starts] = 0
        expected = expected * (1 - 0.2 * 0.25) + 0.5 * 0.5 * draws.standard_normal(
            (4, 1), np.float32
        )
        np.testing.assert_allclose(noise.explore(zeros, starts, step), expected, rtol=1e-5)


def test_ornstein_uhlenbeck_noise_resumes_where_it_was():
    """The saved noise goes on as the original, given the stream's state."""
    original, stream = OrnsteinUhlenbeckNoise(0.5, rng()), rng(1)
    zeros = np.zeros((4, 1), np.float32)
    for step in range(3):
        original.explore(zeros, NO_STARTS, step)
    copy = OrnsteinUhlenbeckNoise(0.5, stream)
    copy.load_state_dict(original.state_dict())
    stream.bit_generator.state = original._rng.bit_generator.state
    for step in range(3):
        assert np.array_equal(
            original.explore(zeros, NO_STARTS, step), copy.explore(zeros, NO_STARTS, step)
        )


def test_ornstein_uhlenbeck_noise_follows_exploration_of_another_kind():
    """What that saved has no noise to go on with, which starts at 0."""
    noise = OrnsteinUhlenbeckNoise(0.5, rng())
    noise.load_state_dict(GaussianNoise(0.1, rng()).state_dict())
    assert noise.state_dict() == {"noise": None}
