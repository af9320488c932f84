"""Buffers that store each frame once give the draws of buffers with whole observations."""

import numpy as np
import pytest
from gymnasium import Env, spaces
from gymnasium.wrappers import FrameStackObservation
from hypothesis import given
from hypothesis import strategies as st
from rlox_native import PrioritizedReplayBuffer, ReplayBuffer

STACK = 4


class Numbered(Env):
    """Frames that count up; an episode ends at random."""

    observation_space = spaces.Box(0, 255, (2, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self, chance):
        self.chance, self.k = chance, 0

    def frame(self):
        self.k += 1
        return np.full((2, 3), self.k % 251, np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.frame(), {}

    def step(self, action):
        ends = self.np_random.random(2) < self.chance
        return self.frame(), float(action), *ends, {}


def assert_same(a, b):
    """Two batches have the same keys, types and bytes."""
    assert list(a) == list(b)
    for key in a:
        np.testing.assert_array_equal(a[key], b[key], err_msg=key, strict=True)


@given(
    seed=st.integers(0, 2**32),
    capacity=st.integers(3, 40),
    n_envs=st.integers(1, 3),
    n_step=st.integers(1, 3),
    padding=st.sampled_from(["reset", "zero"]),
    prioritized=st.booleans(),
    steps=st.integers(1, 40),
    without_next=st.integers(0, 60),
)
def test_shared_frames_change_no_draw(
    seed, capacity, n_envs, n_step, padding, prioritized, steps, without_next
):
    """For stacks with any padding, several envs and steps, sequences, states, and missing ends."""
    cls = PrioritizedReplayBuffer if prioritized else ReplayBuffer
    options = {"obs_dtype": "uint8", "n_envs": n_envs, "n_step": n_step, "seed": seed}
    whole, shared = (
        cls(capacity, (STACK, 2, 3), 1, share_frames=share, **options) for share in (False, True)
    )
    envs = [
        FrameStackObservation(Numbered(0.1), STACK, padding_type=padding) for _ in range(n_envs)
    ]
    obs = np.array([env.reset(seed=seed % 1000 + k)[0] for k, env in enumerate(envs)])
    for step in range(steps):
        results = [env.step(step % 2) for env in envs]
        next_obs, rewards, terminated, truncated, _ = zip(*results, strict=True)
        known = np.array(next_obs) if step != without_next else None
        for buffer in (whole, shared):
            buffer.push_batch(obs, np.ones(n_envs), rewards, terminated, truncated, known)
        obs = np.array(
            [
                env.reset()[0] if a or b else o
                for env, o, a, b in zip(envs, next_obs, terminated, truncated, strict=True)
            ]
        )
        assert_same(shared.sample(7), whole.sample(7))
    assert_same(shared.sample_sequences(4, 5), whole.sample_sequences(4, 5))
    assert_same(shared.state(), whole.state())
    again = cls(capacity, (STACK, 2, 3), 1, share_frames=True, **options)
    again.set_state(whole.state())
    out = shared.sample(7)
    assert_same(again.sample(7, out=out), whole.sample(7, out=whole.sample(7, 0)))


def test_memory_is_that_of_the_frames():
    """An eighth of that of whole observations, as reported."""
    sizes = (1_000, (4, 84, 84), 1)
    options = {"obs_dtype": "uint8", "act_dtype": "int64"}
    shared = ReplayBuffer.memory_bytes(*sizes, share_frames=True, **options)
    assert shared == 1_000 * (84 * 84 + 64)
    assert ReplayBuffer.memory_bytes(*sizes, **options) / shared == pytest.approx(7.93, abs=0.01)
    buffer = ReplayBuffer(*sizes, share_frames=True, **options)
    assert buffer.nbytes == shared
    assert "share_frames=True" in repr(buffer)


def test_a_vector_is_no_stack():
    """Frames lie along the first of several axes."""
    for cls in (ReplayBuffer, PrioritizedReplayBuffer):
        with pytest.raises(ValueError, match="share_frames takes observations that are stacks"):
            cls(10, 4, 1, share_frames=True)
        with pytest.raises(TypeError):
            cls(10, (4, 2), 1, share_frames="yes")
