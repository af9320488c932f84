"""Tests of :mod:`rlox.envs.running`."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox.envs.running import EpisodeStatistics


def test_no_episode_has_no_mean():
    """Before the first finished episode the means are NaN."""
    statistics = EpisodeStatistics(2)
    statistics.add(np.ones((1, 2)), np.zeros((1, 2), bool))
    assert math.isnan(statistics.mean_return)
    assert math.isnan(statistics.mean_length)
    assert statistics.finished == 0


def test_envs_without_ends_are_reported_once():
    """After 100,000 env steps of all envs together."""
    statistics, none = EpisodeStatistics(2), np.zeros((49_999, 2), bool)
    statistics.add(np.ones((49_999, 2)), none)
    with pytest.warns(UserWarning, match="no episode has ended in 100,000 env steps"):
        statistics.add(np.ones((1, 2)), none[:1])
    statistics.add(np.ones((1, 2)), none[:1])


def test_window_keeps_the_last_episodes():
    """Older episodes leave the means, not the count."""
    statistics = EpisodeStatistics(1, window=2)
    for reward in (1.0, 2.0, 6.0):
        statistics.add(np.array([[reward]]), np.array([[True]]))
    assert statistics.mean_return == 4.0
    assert statistics.finished == 3


@given(st.lists(st.lists(st.tuples(st.integers(-9, 9), st.booleans()), min_size=3, max_size=3)))
def test_statistics_equal_a_naive_model(script):
    """Episodes kept env by env in lists give the same means."""
    statistics = EpisodeStatistics(3, window=1000)
    running = [[], [], []]
    finished = []
    for row in script:
        statistics.add(np.array([[r for r, _ in row]]), np.array([[e for _, e in row]]))
        for i, (reward, ended) in enumerate(row):
            running[i].append(reward)
            if ended:
                finished.append(running[i])
                running[i] = []
    assert statistics.finished == len(finished)
    if finished:
        assert statistics.mean_return == np.mean([sum(e) for e in finished])
        assert statistics.mean_length == np.mean([len(e) for e in finished])


def example():
    """Return statistics with two finished episodes and one running."""
    statistics = EpisodeStatistics(1, window=10)
    for reward, ended in ((1.0, True), (3.0, True), (5.0, False)):
        statistics.add(np.array([[reward]]), np.array([[ended]]))
    return statistics


@pytest.mark.parametrize(("keep_running", "last", "length"), [(True, 6, 2), (False, 1, 1)])
def test_state_round_trip(keep_running, last, length):
    """Where the envs go on, so do the running sums, else they are left; the rest is replaced."""
    restored = example() if keep_running else EpisodeStatistics(1, window=10)
    restored.load_state_dict(example().state_dict(), keep_running=keep_running)
    restored.add(np.array([[1.0]]), np.array([[True]]))
    assert (restored.finished, restored.mean_return) == (3, (1 + 3 + last) / 3)
    assert restored.mean_length == (1 + 1 + length) / 3


@given(st.lists(st.lists(st.tuples(st.integers(-9, 9), st.booleans()), min_size=3, max_size=3)))
def test_many_steps_at_once_equal_the_same_steps_one_by_one(script):
    """Where a rollout is cut plays no part, and an empty rollout changes nothing."""
    rewards = np.array([[r for r, _ in row] for row in script], float).reshape(-1, 3)
    ended = np.array([[e for _, e in row] for row in script], bool).reshape(-1, 3)
    whole, parts = EpisodeStatistics(3), EpisodeStatistics(3)
    whole.add(rewards, ended)
    for t in range(len(script)):
        parts.add(rewards[t : t + 1], ended[t : t + 1])
    for name, value in whole.state_dict().items():
        assert np.array_equal(value, parts.state_dict()[name]), name
