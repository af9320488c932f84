"""Transitions of several steps against explicit sums, for any ends and rings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox_native import PrioritizedReplayBuffer, ReplayBuffer

both = pytest.mark.parametrize("cls", [ReplayBuffer, PrioritizedReplayBuffer])


def push_steps(buffer, ends, rewards):
    """Push steps of n envs, one row per step; return each env's own steps."""
    n_envs = ends.shape[1]
    streams = [[] for _ in range(n_envs)]
    number = 0
    for row, reward in zip(ends, rewards, strict=True):
        ids = np.arange(number, number + n_envs, dtype=np.float32)
        number += n_envs
        terminated, truncated = row == 1, row == 2
        buffer.push_batch(ids[:, None], ids, reward, terminated, truncated, ids[:, None] + 0.5)
        for env in range(n_envs):
            streams[env].append((ids[env], reward[env], terminated[env], truncated[env]))
    return streams


def oracle(streams, capacity, n_step, gamma):
    """By its number, the transition of several steps that begins at each stored step."""
    newest = max(step[0] for stream in streams for step in stream)
    expected = {}
    for stream in streams:
        for start, (number, *_) in enumerate(stream):
            if number <= newest - capacity:
                continue
            total, k = 0.0, 0
            for _, reward, terminated, truncated in stream[start : start + n_step]:
                total += gamma**k * reward
                k += 1
                if terminated or truncated:
                    break
            last, _, terminated, truncated = stream[start + k - 1]
            discount = 0.0 if terminated else gamma**k
            expected[number] = (total, discount, last + 0.5, terminated, truncated)
    return expected


@both
@given(
    capacity=st.integers(3, 25),
    n_envs=st.integers(1, 3),
    n_step=st.integers(2, 6),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    data=st.data(),
)
def test_a_transition_spans_the_steps_of_its_env(cls, capacity, n_envs, n_step, gamma, data):
    """Up to the end of the episode, before and after the ring has wrapped around."""
    n = data.draw(st.integers(1, 20))
    seed = data.draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    ends = rng.choice(3, (n, n_envs), p=[0.7, 0.15, 0.15])
    rewards = rng.integers(-8, 9, (n, n_envs)).astype(np.float32)
    buffer = cls(capacity, 1, 1, n_envs=n_envs, n_step=n_step, gamma=gamma, seed=0)
    expected = oracle(push_steps(buffer, ends, rewards), capacity, n_step, gamma)
    batch = buffer.sample(60, seed=seed)
    for row in range(60):
        number = batch["obs"][row, 0]
        total, discount, next_obs, terminated, truncated = expected[number]
        assert batch["actions"][row, 0] == number
        np.testing.assert_allclose(batch["rewards"][row], total, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(batch["discounts"][row], discount, rtol=1e-6)
        assert batch["next_obs"][row, 0] == next_obs
        assert (batch["terminated"][row], batch["truncated"][row]) == (terminated, truncated)
    assert set(buffer.sample(1_000, seed=1)["obs"][:, 0]) == set(expected)


@both
def test_steps_of_some_envs_alone_are_refused(cls):
    """Their envs could not be told apart."""
    buffer = cls(8, 1, 1, n_envs=3, n_step=2)
    with pytest.raises(ValueError, match="multiples of 3, got 1; push the steps of all envs"):
        buffer.push(0, 0, 0, False, False)
    zeros = np.zeros((4, 1))
    with pytest.raises(ValueError, match=r"n_envs = 3 .* multiples of 3, got 4"):
        buffer.push_batch(zeros, zeros, zeros[:, 0], zeros[:, 0], zeros[:, 0], zeros)
    assert len(buffer) == 0


@both
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_step": 0}, ValueError, "n_step must be at least 1, got 0"),
        ({"n_envs": 5}, ValueError, r"n_envs must lie in \[1, 4\], got 5"),
        ({"gamma": 1.5}, ValueError, r"gamma must lie in \[0, 1\], got 1.5"),
        ({"gamma": "x"}, TypeError, "gamma must be a real number"),
        ({"steps": 3}, TypeError, "there is no option 'steps'; the options are obs_dtype"),
    ],
)
def test_impossible_options_are_refused(cls, options, error, message):
    """The error names the option."""
    with pytest.raises(error, match=message):
        cls(4, 1, 1, **options)
