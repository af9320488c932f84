"""The vector env against gymnasium's, its errors, its state, and its use from threads."""

from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox_native import VecEnv, native_env_ids
from rlox_native.envs import make_vec_env


def arrays(n, obs_dim=4):
    """Arrays for `step_into`, full of values that a step must overwrite."""
    return [
        np.full((n, obs_dim), np.nan, np.float32),
        np.full(n, np.nan),
        np.full(n, 7, np.uint8).view(np.bool_),
        np.full(n, 7, np.uint8).view(np.bool_),
        np.full((n, obs_dim), np.nan, np.float32),
    ]


KEYS = ("obs", "rewards", "terminated", "truncated", "final_obs")


SPACES = {env_id: gym.make(env_id).action_space for env_id in native_env_ids()}

every_env = pytest.mark.parametrize("env_id", native_env_ids())


def random_actions(env_id, rng, n):
    """Draw n actions of the env."""
    space = SPACES[env_id]
    if isinstance(space, gym.spaces.Discrete):
        return rng.integers(0, space.n, n)
    return rng.uniform(space.low, space.high, (n, *space.shape)).astype(np.float32)


def test_time_limit_truncates_and_resets():
    """An episode is truncated at gymnasium's limit, shows its last observation and restarts."""
    limit = gym.spec("CartPole-v1").max_episode_steps
    envs = VecEnv(2, seed=3)
    obs = envs.reset_all()
    for step in range(1, limit + 2):
        got = envs.step_all((obs[:, 2] + obs[:, 3] > 0).astype(np.int64))
        obs = got["obs"]
        assert got["truncated"].tolist() == [step == limit] * 2
        assert not got["terminated"].any()
        assert (got["final_obs"] == obs).all() == (step != limit)


@every_env
def test_step_into_writes_what_step_all_returns(env_id):
    """Both ways to step give the same bytes, for any earlier content of the arrays."""
    envs, other = VecEnv(5, seed=1, env_id=env_id), VecEnv(5, seed=1, env_id=env_id)
    envs.reset_all()
    other.reset_all()
    out = arrays(5, *envs.observation_space.shape)
    rng = np.random.default_rng(0)
    for _ in range(200):
        actions = random_actions(env_id, rng, 5)
        got = envs.step_all(actions)
        assert other.step_into(actions, *out) is None
        for key, array in zip(KEYS, out, strict=True):
            assert got[key].tobytes() == array.tobytes(), key


def test_stepping_before_reset_is_refused():
    """The error of a new vector env asks for reset_all()."""
    with pytest.raises(RuntimeError, match=r"call reset_all\(\)"):
        VecEnv(2, seed=0).step_all([0, 0])


def read_only():
    """Rewards that cannot be written."""
    array = np.zeros(3)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("place", "array", "error", "message"),
    [
        (0, np.zeros((3, 4)), TypeError, "obs must have dtype float32, got float64"),
        (0, np.zeros((4, 3), np.float32), ValueError,
         r"obs must have shape \(3, 4\).*got \(4, 3\)"),
        (0, np.zeros((4, 3), np.float32).T, ValueError, "obs must be C-contiguous"),
        (1, np.zeros(4), ValueError, "rewards must have length 3 like the envs, got 4"),
        (1, read_only(), ValueError, "rewards must be writeable"),
        (2, np.zeros(3, np.uint8), TypeError, "terminated must have dtype bool, got uint8"),
    ],
)  # fmt: skip
def test_step_into_refuses_unfit_arrays(place, array, error, message):
    """The error names the array that does not fit, and no env has moved."""
    envs = VecEnv(3, seed=0)
    envs.reset_all()
    before = envs.state()
    out = arrays(3)
    out[place] = array
    with pytest.raises(error, match=message):
        envs.step_into([0, 1, 0], *out)
    assert_states_equal(envs.state(), before)


def test_step_into_refuses_arrays_that_share_memory():
    """One array for two results would hold only one of them."""
    envs = VecEnv(3, seed=0)
    envs.reset_all()
    out = arrays(3)
    out[4] = out[0]
    with pytest.raises(ValueError, match="final_obs must not share memory"):
        envs.step_into([0, 1, 0], *out)


def test_a_sequence_of_seeds_seeds_each_env():
    """Env i starts like gymnasium's with the i-th seed, in reset and constructor."""
    seeds = [5, 2**40, 0]
    expected = [gym.make("CartPole-v1").reset(seed=s)[0] for s in seeds]
    np.testing.assert_array_equal(VecEnv(3).reset_all(seed=seeds), expected)
    np.testing.assert_array_equal(VecEnv(3, seed=np.array(seeds)).reset_all(), expected)


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        (-1, ValueError, r"seed must lie in \[0, 18446744073709551615\], got -1"),
        (2**64 - 2, ValueError, r"seed \+ n - 1 must lie in"),
        (True, TypeError, "got bool"),
        ([1, 2], ValueError, "seed must have length 3 like the envs, got 2"),
        ([1, 2, -3], ValueError, "got -3"),
        ([1, 2, None], TypeError, "got NoneType"),
        (iter([1, 2, 3]), TypeError, "seed must be"),
    ],
)
def test_bad_seeds_are_refused_and_change_nothing(seed, error, message):
    """The error names the seed, and the streams continue."""
    envs = VecEnv(3, seed=0)
    before = envs.state()
    with pytest.raises(error, match=message):
        envs.reset_all(seed=seed)
    assert_states_equal(envs.state(), before)
    with pytest.raises(error, match=message):
        VecEnv(3, seed=seed)


@pytest.mark.parametrize(
    ("n", "error"),
    [(0, ValueError), (-1, ValueError), (2**70, ValueError), (2**25, ValueError), (1.0, TypeError)],
)
def test_bad_sizes_are_refused(n, error):
    """A size is an integer from 1 to 2**24."""
    with pytest.raises(error, match="n must"):
        VecEnv(n)


def test_make_vec_env_builds_and_refuses_options():
    """The factory refuses env options and names a backend that takes them."""
    envs = make_vec_env("CartPole-v1", n_envs=2)
    assert isinstance(envs, VecEnv)
    assert make_vec_env("CartPole-v1", n_envs=2, env_kwargs={}).n_envs == 2
    with pytest.raises(ValueError, match="no env_kwargs, got 'gravity'; use the gymnasium backend"):
        make_vec_env("CartPole-v1", n_envs=2, env_kwargs={"gravity": 1.0})


def assert_states_equal(a, b):
    """Two states have the same keys and bytes."""
    assert a.keys() == b.keys()
    for key in a:
        np.testing.assert_array_equal(a[key], b[key], strict=True)


@every_env
@given(seed=st.integers(0, 2**64 - 5), steps=st.integers(0, 60), n=st.integers(1, 5))
def test_a_restored_state_goes_on_with_the_same_bits(env_id, seed, steps, n):
    """Another object with the restored state takes the same steps and resets."""
    rng = np.random.default_rng(steps)
    envs, other = VecEnv(n, seed=seed, env_id=env_id), VecEnv(n, env_id=env_id)
    if steps:
        envs.reset_all()
    for _ in range(steps):
        envs.step_all(random_actions(env_id, rng, n))
    saved = envs.state()
    other.set_state(saved)
    assert_states_equal(other.state(), saved)
    if not steps:
        assert envs.reset_all().tobytes() == other.reset_all().tobytes()
    for _ in range(60):
        actions = random_actions(env_id, rng, n)
        a, b = envs.step_all(actions), other.step_all(actions)
        assert all(a[key].tobytes() == b[key].tobytes() for key in KEYS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"physics": np.zeros((2, 4), np.float32)}, r"state\['physics'\] must be .* float64"),
        ({"physics": np.zeros((4, 2))}, r"physics must have shape \(2, 4\).*got \(4, 2\)"),
        ({"physics": np.full((2, 4), 2.5)}, r"physics must lie in \[-2.4, 2.4\], got 2.5"),
        ({"elapsed": np.zeros(3, np.uint32)}, "elapsed must have length 2 like the envs, got 3"),
        ({"elapsed": np.array([0, 500], np.uint32)}, "elapsed is not a valid state"),
        ({"rng": np.zeros((2, 4), np.uint64)}, "rng is not a valid state"),
        ({"started": np.zeros(2, np.bool_)}, "started must have length 1"),
        ({"surplus": np.zeros(1)}, "state must have the keys"),
        ({"env_id": VecEnv(2, env_id="Acrobot-v1").state()["env_id"]},
         "env_id must be 'Acrobot-v1' as in the state, got 'CartPole-v1'"),
    ],
)  # fmt: skip
def test_a_malformed_state_is_refused_whole(change, message):
    """The error names an impossible part, and the envs are unchanged."""
    envs = VecEnv(2, seed=0)
    envs.reset_all()
    before = envs.state()
    with pytest.raises(ValueError, match=message):
        envs.set_state(VecEnv(2, seed=9).state() | change)
    assert_states_equal(envs.state(), before)


def test_a_state_without_a_key_or_of_another_type_is_refused():
    """A missing key is a ValueError; any type except a dict is a TypeError."""
    envs = VecEnv(2, seed=0)
    state = envs.state()
    state["other"] = state.pop("rng")
    with pytest.raises(ValueError, match="state must have the key 'rng'"):
        envs.set_state(state)
    with pytest.raises(TypeError, match="state must be a dict"):
        envs.set_state(list(state))
    older = {key: array for key, array in VecEnv(2, seed=1).state().items() if key != "env_id"}
    envs.set_state(older)
    assert_states_equal(envs.state(), VecEnv(2, seed=1).state())


def test_threads_share_one_object():
    """Simultaneous calls from many threads run one after the other, each whole."""
    n, rounds, workers = 64, 60, 8
    envs = VecEnv(n, seed=0)
    envs.reset_all()

    def hammer(worker):
        rng = np.random.default_rng(worker)
        out = arrays(n)
        for k in range(rounds):
            actions = rng.integers(0, 2, n)
            match (worker + k) % 5:
                case 0:
                    envs.step_into(actions, *out)
                    assert np.isfinite(out[0]).all()
                case 1:
                    state = envs.state()
                    assert (state["elapsed"] < 500).all()
                    envs.set_state(state)
                case 2 if k % 50 == 0:
                    assert (np.abs(envs.reset_all(seed=k)) <= 0.05).all()
                case _:
                    step = envs.step_all(actions)
                    done = step["terminated"] | step["truncated"]
                    same = (step["obs"] == step["final_obs"]).all(axis=1)
                    assert (same != done).all()
        return worker

    with ThreadPoolExecutor(workers) as pool:
        assert sum(pool.map(hammer, range(workers))) == sum(range(workers))


def test_a_refused_step_leaves_the_arrays_as_they_were():
    """Including flags, for any byte that means true."""
    envs = VecEnv(2, seed=0)
    obs = envs.reset_all()
    flags = np.array([0, 7], np.uint8).view(np.bool_)
    out = [obs, np.ones(2), flags, flags.copy(), obs.copy()]
    before = [array.copy() for array in out]
    with pytest.raises(ValueError, match=r"actions\[1\] must lie in"):
        envs.step_into([0, 5], *out)
    for array, copy in zip(out, before, strict=True):
        np.testing.assert_array_equal(array, copy)
