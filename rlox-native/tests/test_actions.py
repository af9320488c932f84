"""Valid and invalid actions of discrete and continuous envs."""

import gymnasium as gym
import numpy as np
import pytest
from rlox_native import VecEnv, native_env_ids

SPACES = {env_id: gym.make(env_id).action_space for env_id in native_env_ids()}
DISCRETE = [env_id for env_id in SPACES if isinstance(SPACES[env_id], gym.spaces.Discrete)]
CONTINUOUS = [env_id for env_id in SPACES if isinstance(SPACES[env_id], gym.spaces.Box)]

every_discrete_env = pytest.mark.parametrize("env_id", DISCRETE)
every_continuous_env = pytest.mark.parametrize("env_id", CONTINUOUS)


def started(env_id):
    """Three envs in their first episode."""
    envs = VecEnv(3, seed=1, env_id=env_id)
    envs.reset_all()
    return envs


def outputs(envs):
    """Arrays for `step_into`."""
    n, (obs_dim,) = envs.n_envs, envs.observation_space.shape
    obs, final_obs = (np.zeros((n, obs_dim), np.float32) for _ in range(2))
    return [obs, np.zeros(n), np.zeros(n, np.bool_), np.zeros(n, np.bool_), final_obs]


def check_refused(envs, actions, error, message):
    """Both ways to step refuse the actions, and no env moves."""
    before = envs.state()
    out = outputs(envs)
    for step in (envs.step_all, lambda actions: envs.step_into(actions, *out)):
        with pytest.raises(error, match=message):
            step(actions)
    after = envs.state()
    assert all(before[key].tobytes() == after[key].tobytes() for key in before)


@every_discrete_env
@pytest.mark.parametrize(
    "actions",
    [
        [0, 1, 1],
        (0, 1, 1),
        [np.int8(0), 1, np.uint64(1)],
        np.array([0, 1, 1], np.int32),
        np.array([0, 1, 1], np.uint64),
        np.array([0, 1, 1], ">i8"),
        np.array([0, 9, 1, 9, 1, 9])[::2],
    ],
)
def test_every_kind_of_integers_is_an_action(env_id, actions):
    """Lists, tuples, and integer arrays of any type and layout give the same step."""
    expected = started(env_id).step_all(np.array([0, 1, 1]))
    assert started(env_id).step_all(actions)["obs"].tobytes() == expected["obs"].tobytes()


@every_discrete_env
def test_an_action_beyond_the_last_is_refused(env_id):
    """The error names the first nonexistent action, its env and the range."""
    n = int(SPACES[env_id].n)
    message = rf"actions\[1\] must lie in \[0, {n - 1}\], got {n}"
    check_refused(started(env_id), [n - 1, n, -1], ValueError, message)


@every_discrete_env
@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (np.array([0, 0, -1]), ValueError, r"actions\[2\] must lie in \[0, \d\], got -1"),
        ([0, 2**70, 0], ValueError, r"actions\[1\] is not an action .* got 1180591620717411303424"),
        (np.array([2**63, 0, 0], np.uint64), ValueError,
         r"actions\[0\] .* got 9223372036854775808"),
        ([0, 1], ValueError, "actions must have length 3 like n_envs, got 2"),
        (np.zeros((3, 1), np.int64), ValueError, "actions must have 1 dimension, got 2"),
        (np.zeros(3), TypeError, "actions must be integers, got dtype float64"),
        ([0, 1.0, 1], TypeError, r"actions\[1\] must be an integer, got float"),
        (None, TypeError, "actions must hold real numbers"),
    ],
)  # fmt: skip
def test_bad_discrete_actions_are_refused_and_move_nothing(env_id, actions, error, message):
    """The error names the action, and no env has moved."""
    check_refused(started(env_id), actions, error, message)


@every_continuous_env
@pytest.mark.parametrize(
    "actions",
    [
        [[0.5], [-1.0], [3.0]],
        [0.5, -1, np.float16(3)],
        (0.5, -1.0, 3.0),
        np.array([0.5, -1.0, 3.0]),
        np.array([0.5, -1.0, 3.0], np.float32),
        np.array([[0.5], [-1.0], [3.0]], np.float16),
        np.array([[0.5], [-1.0], [3.0]], ">f4"),
        np.array([[0.5, 9.0], [-1.0, 9.0], [3.0, 9.0]], np.float32)[:, :1],
        np.array([0.5, 9.0, -1.0, 9.0, 3.0, 9.0])[::2],
    ],
)
def test_every_kind_of_real_numbers_is_an_action(env_id, actions):
    """Lists, tuples and arrays of any real type and layout act alike, with or without an axis."""
    expected = started(env_id).step_all(np.array([[0.5], [-1.0], [3.0]], np.float32))
    envs = started(env_id)
    out = outputs(envs)
    envs.step_into(actions, *out)
    for key, array in zip(("obs", "rewards"), out, strict=False):
        assert array.tobytes() == expected[key].tobytes()
    assert started(env_id).step_all(actions)["obs"].tobytes() == expected["obs"].tobytes()


@every_continuous_env
def test_continuous_actions_are_rounded_to_single_precision(env_id):
    """A double acts like the nearest number of the action space's type."""
    actions = np.random.default_rng(0).uniform(-1, 1, (3, 1))
    expected = started(env_id).step_all(actions.astype(np.float32))
    got = started(env_id).step_all(actions)
    assert all(got[key].tobytes() == expected[key].tobytes() for key in expected)


@every_continuous_env
@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        ([0.0, np.nan, np.nan], ValueError, "actions must be finite.* at index 1"),
        (np.full((3, 1), np.nan, np.float32), ValueError, "actions must be finite.* at index 0"),
        ([0.0, 0.0, 1e39], ValueError, "actions must fit float32, got 1e39 at index 2"),
        ([0.0, 0.0], ValueError, r"actions must have shape \(3, 1\) like the action space.*\b2\b"),
        (np.zeros((3, 1, 1)), ValueError, r"actions must have shape.*got \(3, 1, 1\)"),
        ([[0.0], [0.0, 1.0], [0.0]], ValueError, "actions must be a rectangular array"),
        (np.zeros(3, np.bool_), TypeError, "actions must be real numbers, got dtype bool"),
        (None, TypeError, "actions must hold real numbers"),
    ],
)
def test_bad_continuous_actions_are_refused_and_move_nothing(env_id, actions, error, message):
    """The error names the action, and no env has moved."""
    check_refused(started(env_id), actions, error, message)


@every_continuous_env
def test_actions_must_not_share_memory_with_a_result(env_id):
    """An array that would be read and written is refused before any env moves."""
    envs = started(env_id)
    before = envs.state()["physics"]
    out = outputs(envs)
    with pytest.raises(ValueError, match="obs must not share memory with another argument"):
        envs.step_into(out[0].reshape(-1)[:3], *out)
    np.testing.assert_array_equal(envs.state()["physics"], before)


def test_converting_actions_cannot_spoil_the_flags():
    """Bytes other than 0 and 1, written by code run by the conversion, do not stay."""
    envs = started("Pendulum-v1")
    out = outputs(envs)

    class Spoiler:
        """Writes to the results when converted to an array."""

        def __array__(self, dtype=None, copy=None):
            out[2].view(np.uint8).fill(7)
            return np.zeros(3, np.float32)

    envs.step_into(Spoiler(), *out)
    assert not out[2].view(np.uint8).any()
