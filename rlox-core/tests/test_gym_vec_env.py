"""Tests of :mod:`rlox.envs.gymnasium`: every autoreset mode keeps the one contract."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from rlox.envs.gymnasium import GymVecEnv
from rlox.envs.make import make_vec_env
from rlox.errors import EnvError

MODES = list(AutoresetMode)
steps = st.tuples(st.integers(-4, 4).map(float), st.booleans(), st.booleans())
scripts = st.lists(st.lists(steps, min_size=1, max_size=5), min_size=1, max_size=3)

SCRIPTS = [
    [(1.0, False, False), (2.0, True, False), (3.0, False, False)],
    [(0.5, False, True)],
    [(1.0, True, True), (1.0, False, False), (2.0, False, True), (0.0, False, False)],
]


def play(env, n_steps, n_envs=None):
    """Step an adapter with all actions 1 and return copies of what it gave."""
    adapter = GymVecEnv(env, n_envs)
    first = adapter.reset_all().copy()
    result = []
    for _ in range(n_steps):
        step = adapter.step_all(np.ones(adapter.n_envs, np.int64))
        result.append({key: np.array(value) for key, value in step.items()})
    adapter.close()
    assert (first[:, 1:] == [1, 0]).all()
    return result


def oracle(makers, n_steps):
    """Step each env by itself and reset it in the step that ends its episode."""
    envs = [maker() for maker in makers]
    for env in envs:
        env.reset()
    result = []
    for _ in range(n_steps):
        rows = []
        for env in envs:
            final, reward, terminated, truncated, _ = env.step(np.int64(1))
            obs = env.reset()[0] if terminated or truncated else final
            rows.append((obs, np.float64(reward), terminated, truncated, final))
        columns = zip(*rows, strict=True)
        keys = ("obs", "rewards", "terminated", "truncated", "final_obs")
        result.append(dict(zip(keys, map(np.array, columns), strict=True)))
    return result


def assert_same(got, expected):
    """Compare values and dtypes exactly."""
    for t, (a, b) in enumerate(zip(got, expected, strict=True)):
        for key, value in b.items():
            np.testing.assert_array_equal(a[key], value, err_msg=f"{key} at {t}", strict=True)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("mode", MODES)
@given(scripts=scripts)
def test_sync_env_equals_single_envs(scripted, mode, copy, scripts):
    """Whatever the autoreset mode, each env plays as it does alone."""
    makers = scripted.makers(scripts)
    env = SyncVectorEnv(makers, autoreset_mode=mode, copy=copy)
    expected = oracle(makers, 12)
    assert_same(play(env, 12), expected)
    envs = iter([maker() for maker in makers])
    assert_same(play(lambda: next(envs), 12, len(makers)), expected)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("mode", "shared_memory"),
    [
        *((mode, True) for mode in MODES),
        (AutoresetMode.SAME_STEP, False),
        (AutoresetMode.DISABLED, False),
    ],
)
def test_async_env_equals_single_envs(scripted, mode, shared_memory):
    """Worker processes change nothing."""
    makers = scripted.makers(SCRIPTS)
    env = AsyncVectorEnv(makers, autoreset_mode=mode, shared_memory=shared_memory)
    assert_same(play(env, 12), oracle(makers, 12))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_seeded_episodes_equal_gymnasium():
    """Env i of seed s plays the episode of a single env reset with seed s + i."""
    env = make_vec_env("CartPole-v1", n_envs=2, vectorization="async")
    obs = env.reset_all(seed=7)
    for i in range(2):
        single = gymnasium.make("CartPole-v1")
        np.testing.assert_array_equal(obs[i], single.reset(seed=7 + i)[0])
        single.close()
    env.close()


@pytest.mark.parametrize("seed", [3, np.int64(3), [3, 4], np.array([3, 4])])
def test_seed_may_be_an_integer_or_one_per_env(seed):
    """NumPy's integers count as integers."""
    env = GymVecEnv("CartPole-v1", 2)
    expected = env.reset_all(seed=3)
    np.testing.assert_array_equal(env.reset_all(seed=seed), expected)
    env.close()


def test_instances_cannot_be_multiplied(scripted):
    """One env is one env, and a vector env is as many as it is."""
    env = scripted.makers(SCRIPTS)[0]()
    with pytest.raises(EnvError, match=r"^one env cannot serve as n_envs = 2 copies; pass its id"):
        GymVecEnv(env, 2)
    with pytest.raises(EnvError, match=r"^the env callable returned the same ScriptedEnv more"):
        GymVecEnv(lambda: env, 2)
    vector = SyncVectorEnv(scripted.makers(SCRIPTS))
    with pytest.raises(EnvError, match=r"^n_envs is 2, but the vector env has 3 envs$"):
        GymVecEnv(vector, 2)
    vector.close()


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_envs_of_different_spaces_are_refused(name):
    """The error names the env and both spaces."""
    sizes = iter((2, 2, 3))

    class Other(gymnasium.Env):
        observation_space = spaces.Discrete(2)
        action_space = spaces.Discrete(2)

        def __init__(self):
            setattr(self, name, spaces.Discrete(next(sizes)))

    message = rf"^env 2 has the {name} Discrete\(3\), and env 0 has Discrete\(2\); envs that are"
    with pytest.raises(EnvError, match=message):
        GymVecEnv(Other, 3)


def test_next_step_env_of_another_kind_is_refused():
    """A vector env that resets late and cannot reset by mask cannot keep the contract."""
    env = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    message = (
        "CartPoleVectorEnv resets envs in the next step and cannot reset single envs; pass "
        "env='CartPole-v1' with n_envs=2, or gymnasium.make_vec('CartPole-v1', num_envs=2, "
        "vectorization_mode='sync')"
    )
    with pytest.raises(EnvError, match=f"^{re.escape(message)}$"):
        GymVecEnv(env)
    env.close()
    remedy = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    GymVecEnv(remedy).close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_next_step_workers_without_shared_memory_are_refused(scripted):
    """Gymnasium's such workers reset a second time after a reset by mask."""
    env = AsyncVectorEnv(
        scripted.makers(SCRIPTS), autoreset_mode=AutoresetMode.NEXT_STEP, shared_memory=False
    )
    with pytest.raises(EnvError, match=r"^AsyncVectorEnv resets envs in the next step and cannot"):
        GymVecEnv(env)
    env.close()


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("vector_class", [None, SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_nested_observations_are_dicts_by_leaf(vector_class, mode):
    """The true final observation is there leaf by leaf, in every autoreset mode."""

    class Nested(gymnasium.Env):
        observation_space = spaces.Dict(
            {"count": spaces.Discrete(9), "pair": spaces.Tuple([spaces.Box(0, 9, (2,))] * 2)}
        )
        action_space = spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))])

        def _obs(self):
            return {"count": self.count, "pair": (np.full(2, self.count, np.float32),) * 2}

        def reset(self, *, seed=None, options=None):
            self.count = 0
            return self._obs(), {}

        def step(self, action):
            assert self.action_space.contains(action)
            self.count += 1
            return self._obs(), 0.0, False, self.count == 3, {}

    vector = vector_class and vector_class([Nested, Nested], autoreset_mode=mode)
    env = GymVecEnv(vector or Nested, 2)
    obs = env.reset_all(0)
    assert list(obs) == ["count", "pair.0", "pair.1"]
    actions = (np.zeros(2, np.int64), np.zeros((2, 1), np.float32))
    for final in (1, 2, 3, 1):
        step = env.step_all(actions)
        assert step["final_obs"]["count"].tolist() == [final] * 2
        assert step["final_obs"]["pair.1"].tolist() == [[final] * 2] * 2
        assert step["obs"]["pair.0"].tolist() == [[final % 3] * 2] * 2
    with pytest.raises(EnvError, match="the actions are not nested as their space"):
        env.step_all(np.zeros(2))
    env.close()


@pytest.mark.parametrize("actions", [[0], [[0], [1]], 0])
def test_actions_must_be_one_per_env(actions):
    """A wrong shape is an error rather than a broadcast."""
    env = GymVecEnv("CartPole-v1", 2)
    env.reset_all(seed=0)
    with pytest.raises(EnvError, match=r"^actions must have shape \(2,\), got "):
        env.step_all(actions)
    env.close()
