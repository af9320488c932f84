"""Tests of :mod:`rlox.envs.preprocessing` against NumPy, gymnasium and figures by hand."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation
from hypothesis import given
from hypothesis import strategies as st
from rlox.envs.gymnasium import GymVecEnv
from rlox.envs.preprocessing import FrameStack, Moments, Preprocessor, RewardScaler
from rlox.errors import ConfigError
from scripted_env import Numbered

IMAGE = spaces.Box(0, 255, (9, 8, 2), np.uint8)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6), seed=st.integers(0, 9))
def test_moments_are_those_of_all_values(sizes, seed):
    """In parts or at once, up to the weight of the beginning."""
    values = np.random.default_rng(seed).normal(3, 2, (sum(sizes), 2))
    moments = Moments((2,))
    for part in np.split(values, np.cumsum(sizes)[:-1]):
        moments.update(part)
    count = len(values) + 1e-4
    mean = values.sum(0) / count
    squares = (values**2).sum(0) + 1e-4
    np.testing.assert_allclose(moments.mean, mean, atol=1e-9)
    np.testing.assert_allclose(moments.variance, squares / count - mean**2, atol=1e-9)
    restored = Moments((2,))
    restored.load_state_dict(moments.state_dict())
    assert restored.count == moments.count
    assert np.array_equal(restored.variance, moments.variance)


def test_rewards_are_divided_by_the_deviation_of_returns():
    """Two envs, one of which ends: γ = 0.5, by hand."""
    scaler, reference = RewardScaler(2, 0.5), Moments()
    reference.update(np.array([1.0, 2.0]))
    scaled = scaler.scale(np.array([1.0, 2.0]), np.array([False, True]))
    np.testing.assert_allclose(scaled, [1, 2] / np.sqrt(reference.variance + 1e-8))
    reference.update(np.array([0.5 + 4.0, 3.0]))
    scaled = scaler.scale(np.array([4.0, 3.0]), np.array([False, False]))
    np.testing.assert_allclose(scaled, [4, 3] / np.sqrt(reference.variance + 1e-8))
    for keep_running, first in ((True, 0.5 * 4.5), (False, 0.0)):
        restored = RewardScaler(2, 0.5)
        restored.load_state_dict(scaler.state_dict(), keep_running=keep_running)
        assert restored.moments.mean == scaler.moments.mean
        restored.scale(np.zeros(2), np.zeros(2, bool))
        assert restored.state_dict()["returns"][0] == first
    quiet = RewardScaler(1, 1.0)
    for _ in range(100):
        quiet.scale(np.zeros(1), np.zeros(1, bool))
    assert quiet.scale(np.ones(1), np.zeros(1, bool)) == [10.0]


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (spaces.Box(0, 9, (2,)), (6,)),
        (spaces.Box(0, 9, ()), (3,)),
        (spaces.Box(0, 9, (4, 4)), (4, 4, 3)),
        (IMAGE, (9, 8, 6)),
        (spaces.Box(0, 255, (2, 9, 8), np.uint8), (6, 9, 8)),
        (spaces.Discrete(9), (3,)),
        (spaces.MultiDiscrete([9, 9]), (6,)),
    ],
)
def test_stacks_are_gymnasiums(space, shape):
    """The same frames, joined instead of on an axis of their own; ends of episodes included."""
    stack, env = (
        Preprocessor(space, normalize=False, frame_stack=3),
        GymVecEnv(lambda: Numbered(space), 2),
    )
    assert stack.space.shape == shape
    theirs = FrameStackObservation(Numbered(space), 3)
    seen = stack.reset(env.reset_all(0))
    expected, _ = theirs.reset()
    for t in range(1, 12):
        assert seen.shape == (2, *shape)
        assert stack.space.contains(seen[0].astype(stack.space.dtype))
        assert sorted(seen[1].flatten()) == sorted(np.asarray(expected).flatten())
        assert (np.diff(seen[1].flatten()[[0, -1]].astype(int)) >= 0).all()
        step = stack.step(seen, env.step_all(np.zeros(2, np.int64)))
        expected, _, _, cut, _ = theirs.step(0)
        assert sorted(step["final_obs"][0].flatten()) == sorted(np.asarray(expected).flatten())
        if cut:
            assert t % 5 == 0
            expected, _ = theirs.reset()
        seen = step["obs"]


def test_frames_are_joined_along_the_channels():
    """The oldest first, each frame whole."""
    for space, axis in ((IMAGE, -1), (spaces.Box(0, 255, (2, 9, 8), np.uint8), 1)):
        stack = FrameStack(space, 3)
        frames = [np.full((1, *(space.shape or ())), i, np.uint8) for i in range(4)]
        joined = stack.fill(frames[0])
        for frame in frames[1:]:
            joined = stack.push(joined, frame)
        parts = np.split(joined, 3, axis)
        assert [part.flat[0] for part in parts] == [1, 2, 3]
        assert all(np.unique(part).size == 1 for part in parts)


def test_normalized_observations_are_standardised_and_clipped():
    """By the moments of what the rollouts saw, final observations without a part in them."""
    preprocessor = Preprocessor(spaces.Box(-99, 99, (1,)), normalize=True, frame_stack=1)
    preprocessor.reset(np.array([[1.0], [3.0]]))
    step = {
        "obs": np.array([[5.0], [2.0]]),
        "final_obs": np.array([[50.0], [2.0]]),
        "rewards": np.zeros(2),
        "terminated": np.array([False, False]),
        "truncated": np.array([True, False]),
    }
    seen = preprocessor.step(None, step)
    values = np.array([1.0, 3.0, 5.0, 2.0])
    np.testing.assert_allclose(
        seen["obs"], (np.array([[5.0], [2.0]]) - values.mean()) / values.std(), rtol=1e-3
    )
    assert seen["obs"].dtype == np.float32
    assert seen["final_obs"][0] == 10.0
    assert seen["final_obs"][1] == seen["obs"][1]
    before = preprocessor.state_dict()[""]["mean"].copy()
    preprocessor.see(np.array([[7.0]]), None, None)
    assert preprocessor.state_dict()[""]["mean"] == before


def test_only_real_numbers_are_normalized():
    """Bytes and whole numbers of a nested space stay what they are."""
    space = spaces.Dict({"a": IMAGE, "b": spaces.Box(-9, 9, (2,)), "c": spaces.Discrete(3)})
    preprocessor = Preprocessor(space, normalize=True, frame_stack=2)
    assert list(preprocessor.moments) == ["b"]
    obs = {name: np.stack([leaf.sample()] * 2) for name, leaf in space.spaces.items()}
    seen = preprocessor.reset(obs)
    assert seen["a"].dtype == np.uint8
    assert np.array_equal(seen["a"], np.concatenate([obs["a"]] * 2, -1))
    assert np.array_equal(seen["c"], np.stack([obs["c"]] * 2, 1))
    assert preprocessor.space["c"] == spaces.MultiDiscrete([3, 3])
    with pytest.raises(ConfigError, match="normalize_observations: no leaf of Discrete"):
        Preprocessor(spaces.Discrete(3), normalize=True, frame_stack=1)


def test_what_is_seen_may_begin_in_some_of_a_batch():
    """As ``predict`` asks for it."""
    stack = Preprocessor(spaces.Discrete(9), normalize=False, frame_stack=3)
    seen = stack.see(np.array([1, 2]), None, None)
    assert seen.tolist() == [[1, 1, 1], [2, 2, 2]]
    seen = stack.see(np.array([3, 4]), seen, None)
    assert seen.tolist() == [[1, 1, 3], [2, 2, 4]]
    seen = stack.see(np.array([5, 6]), seen, [False, True])
    assert seen.tolist() == [[1, 3, 5], [6, 6, 6]]
