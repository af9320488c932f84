"""Sequences of steps against the streams of the envs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox_native import ReplayBuffer


def fill(buffer, ends):
    """Push numbered steps of n envs, one row per step."""
    n_envs = ends.shape[1]
    for k, row in enumerate(ends):
        ids = np.arange(k * n_envs, (k + 1) * n_envs, dtype=np.float32)[:, None]
        buffer.push_batch(ids, ids, -ids[:, 0], row == 1, row == 2, ids + 0.5)


@given(
    capacity=st.integers(3, 25),
    n_envs=st.integers(1, 3),
    n=st.integers(1, 20),
    seq_len=st.integers(1, 8),
    cross=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_a_sequence_is_a_piece_of_the_stream_of_an_env(capacity, n_envs, n, seq_len, cross, seed):
    """Step by step, within its episode or across episodes, never beyond the stored steps."""
    ends = np.random.default_rng(seed).choice(3, (n, n_envs), p=[0.7, 0.15, 0.15])
    buffer = ReplayBuffer(capacity, 1, 1, n_envs=n_envs, seed=0)
    fill(buffer, ends)
    stored = min(capacity, n * n_envs)
    oldest = n * n_envs - stored
    n_starts = stored - (seq_len - 1) * n_envs if cross else stored
    if n_starts < 1:
        needed = (seq_len - 1) * n_envs + 1
        with pytest.raises(
            RuntimeError, match=f"at least {needed} stored transitions, got {stored}"
        ):
            buffer.sample_sequences(9, seq_len, seed, cross_episodes=cross)
        return
    batch = buffer.sample_sequences(9, seq_len, seed, cross_episodes=cross)
    first = oldest + np.random.default_rng(seed).integers(n_starts, size=9)
    ended = ends.ravel() > 0
    for row, start in enumerate(first):
        steps = []
        for number in range(start, start + seq_len * n_envs, n_envs):
            if number >= n * n_envs or (steps and ended[steps[-1]] and not cross):
                break
            steps.append(number)
        there = len(steps)
        assert there == seq_len or not cross
        assert batch["mask"][row].tolist() == [True] * there + [False] * (seq_len - there)
        assert batch["actions"][row, :, 0].tolist() == steps + [0] * (seq_len - there)
        np.testing.assert_array_equal(batch["obs"][row, :there, 0], steps)
        np.testing.assert_array_equal(batch["next_obs"][row, :there, 0], np.add(steps, 0.5))
        np.testing.assert_array_equal(batch["rewards"][row, :there], np.negative(steps))
        np.testing.assert_array_equal(batch["terminated"][row, :there], ends.ravel()[steps] == 1)
        np.testing.assert_array_equal(batch["truncated"][row, :there], ends.ravel()[steps] == 2)
        begins = [k - n_envs < oldest or ended[k - n_envs] for k in steps]
        assert batch["is_first"][row].tolist() == begins + [False] * (seq_len - there)
        for key in ("obs", "next_obs", "rewards", "terminated", "truncated"):
            assert not batch[key][row, there:].any()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1, 0), ValueError, "seq_len must be at least 1, got 0"),
        ((1, 1.5), TypeError, "seq_len must be an integer, got float"),
        ((2**20, 2**25), MemoryError, "allocate"),
    ],
)
def test_a_bad_draw_is_refused_and_moves_no_stream(arguments, error, message):
    """Sizes and seed are checked before anything is drawn."""
    buffer = ReplayBuffer(9, 1, 1, seed=3)
    with pytest.raises(RuntimeError, match="the buffer is empty"):
        buffer.sample_sequences(1, 1)
    fill(buffer, np.zeros((12, 1)))
    before = buffer.state()["rng"].tolist()
    with pytest.raises(error, match=message):
        buffer.sample_sequences(*arguments)
    assert buffer.state()["rng"].tolist() == before
