"""Tests of hindsight replay: the reference and the Rust buffer against lists of episodes."""

import gc
import importlib
import importlib.util
import math
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox.kernels import reference

NATIVE = importlib.util.find_spec("rlox_native") is not None
BACKENDS = ["reference", *(["native"] if NATIVE else [])]
both = pytest.mark.parametrize("backend", BACKENDS)
CAPACITY = 8


def class_of(backend):
    """Return the buffer of a backend."""
    module = reference if backend == "reference" else importlib.import_module("rlox_native")
    return module.HerReplayBuffer


def reward_of(achieved, desired, info):
    """Return rewards that differ for all pairs of goals."""
    assert info == {}
    assert achieved.shape == desired.shape
    return achieved[:, 0] * 1000 + desired[:, 0]


def make(backend, capacity=CAPACITY, **options):
    """Return a buffer of observations (context, desired, achieved)."""
    options = {"achieved_goal": 2, "desired_goal": 1, "seed": 0} | options
    return class_of(backend)(capacity, 3, 1, 1, options.pop("compute_reward", reward_of), **options)


class Episodes:
    """What is pushed, in one list: the specification of what a draw may give.

    Step number k has the action k, leads to the achieved goal k + 0.5, and has the desired goal -k.
    """

    def __init__(self, n_envs, capacity):
        self.n_envs, self.capacity = n_envs, capacity
        self.steps = []  # env, number of the episode
        self.episode = [0] * n_envs

    def rows(self, ends):
        """Take a step of every env, and return it as arrays; 1 terminates, 2 truncates, 3 both."""
        k = len(self.steps) + np.arange(self.n_envs)
        obs = np.stack([k / 4, -k, k + 0.25], 1)
        next_obs = np.stack([k / 4 + 1, -k, k + 0.5], 1)
        for env, end in enumerate(ends):
            self.steps.append((env, self.episode[env]))
            self.episode[env] += end != 0
        terminated, truncated = (np.array(ends) & flag for flag in (1, 2))
        return obs, k, -k, terminated, truncated, next_obs

    def cut(self):
        """End the episodes that have a step."""
        for env in range(self.n_envs):
            running = (env, self.episode[env]) in self.steps
            self.episode[env] += running

    def goal_steps(self, step, strategy):
        """Return the stored steps of the episode of a step whose achieved goals it may get."""
        stored = range(max(0, len(self.steps) - self.capacity), len(self.steps))
        episode = [k for k in stored if self.steps[k] == self.steps[step]]
        if strategy == "final":
            return episode[-1:]
        return [k for k in episode if k >= step] if strategy == "future" else episode

    def expected(self, n, strategy, chance, rng):
        """Return the steps and the desired goals of a batch."""
        stored = min(len(self.steps), self.capacity)
        slots = rng.integers(stored, size=n)
        relabelled, picks = rng.random(n) < chance, rng.random(n)
        newest = len(self.steps) - 1
        batch = []
        for slot, other, pick in zip(slots, relabelled, picks, strict=True):
            step = newest - (newest - int(slot)) % self.capacity
            goals = self.goal_steps(step, strategy)
            goal = goals[math.floor(pick * len(goals))] + 0.5
            batch.append((step, goal if other else -step))
        return batch


@both
@given(data=st.data())
def test_draws_are_those_of_the_episodes_as_lists(backend, data):
    """Any strategy, several envs, a wrapped ring, cut episodes, and a saved and restored buffer."""
    capacity = data.draw(st.integers(1, 14), "capacity")
    n_envs = data.draw(st.integers(1, min(3, capacity)), "n_envs")
    strategy = data.draw(st.sampled_from(["future", "final", "episode"]), "strategy")
    k = data.draw(st.integers(1, 6), "n_sampled_goal")
    options = {"n_sampled_goal": k, "goal_selection_strategy": strategy}
    buffer = make(backend, capacity, n_envs=n_envs, **options)
    episodes, rng = Episodes(n_envs, capacity), np.random.default_rng(0)
    for _ in range(data.draw(st.integers(1, 4), "rounds")):
        rows = data.draw(
            st.lists(st.lists(st.sampled_from([0, 0, 0, 1, 2, 3]), min_size=n_envs,
                              max_size=n_envs), min_size=1, max_size=20))  # fmt: skip
        at_once = [episodes.rows(ends) for ends in rows]
        if data.draw(st.booleans(), "at once"):
            at_once = [tuple(map(np.concatenate, zip(*at_once, strict=True)))]
        for row in at_once:
            buffer.push_batch(*row)
        if data.draw(st.booleans(), "cut"):
            buffer.truncate_episodes()
            episodes.cut()
        if data.draw(st.booleans(), "restored"):
            state = buffer.state()
            buffer = make(backend, capacity, n_envs=n_envs, **options)
            buffer.set_state(state)
        batch = buffer.sample(12)
        for row, (step, goal) in enumerate(episodes.expected(12, strategy, k / (k + 1), rng)):
            assert batch["actions"][row].tolist() == [step]
            assert batch["obs"][row].tolist() == [step / 4, goal, step + 0.25]
            assert batch["next_obs"][row].tolist() == [step / 4 + 1, goal, step + 0.5]
            own = goal == -step
            assert batch["rewards"][row] == (-step if own else (step + 0.5) * 1000 + goal)
    assert len(buffer) == min(len(episodes.steps), capacity)


@pytest.mark.skipif(not NATIVE, reason="needs rlox-native")
@given(
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from(["uint8", "int32", "int64", "float32", "float64"]),
    goal_dim=st.integers(1, 3),
    threshold=st.sampled_from([0.0, 0.7, 40.0, math.inf]),
    strategy=st.sampled_from(["future", "final", "episode"]),
)
def test_rust_and_numpy_draw_the_same(seed, dtype, goal_dim, threshold, strategy):
    """The same bits, with rewards of distances, ends of goals, and a stream that goes on."""
    rng = np.random.default_rng(seed)
    buffers = [
        class_of(backend)(
            20, 2 * goal_dim + 2, (2,), goal_dim, distance_threshold=threshold, n_envs=2,
            obs_dtype=dtype, goal_selection_strategy=strategy, desired_goal=goal_dim + 1, seed=seed,
            compute_terminated=lambda a, d, info: a[:, 0] > d[:, 0],
        )
        for backend in BACKENDS
    ]  # fmt: skip
    for _ in range(30):
        obs, next_obs = rng.integers(0, 100, (2, 2, 2 * goal_dim + 2)) / (
            4 if dtype.startswith("float") else 1
        )
        ends = rng.integers(0, 2, (2, 2)) * rng.integers(0, 2, (2, 2))
        rows = (obs, rng.normal(size=(2, 2)), rng.normal(size=2), *ends, next_obs)
        for buffer in buffers:
            buffer.push_batch(*rows)
        batches = [buffer.sample(9) for buffer in buffers]
        batches.append(buffers[1].sample(9, 5, out={k: v.copy() for k, v in batches[0].items()}))
        batches.append(buffers[0].sample(9, 5))
        for a, b in (batches[:2], batches[2:]):
            assert list(a) == list(b)
            for key in a:
                np.testing.assert_array_equal(a[key], b[key], err_msg=key, strict=True)
    states = [buffer.state() for buffer in buffers]
    for buffer, state in zip(buffers, reversed(states), strict=True):
        buffer.set_state(state)
    restored = [buffer.sample(50) for buffer in buffers]
    for key, array in restored[0].items():
        np.testing.assert_array_equal(array, restored[1][key], err_msg=key, strict=True)


@both
def test_a_distance_decides_the_reward_of_other_goals(backend):
    """0 within the threshold, also on it, and -1 beyond; the own goal keeps the env's reward."""
    buffer = make(backend, compute_reward=None, distance_threshold=1.0)
    for k in range(4):
        buffer.push([0, 99, k], 0, 7, False, k == 3, [0, 99, k + 1])
    batch = buffer.sample(400)
    achieved, desired = batch["next_obs"][:, 2], batch["next_obs"][:, 1]
    expected = np.where(desired == 99, 7, np.where(abs(achieved - desired) <= 1, 0, -1))
    assert batch["rewards"].tolist() == expected.tolist()
    assert set(expected) == {7, 0, -1}


@both
def test_the_functions_say_what_other_goals_are_worth(backend):
    """Both are asked for the same rows, in the types that are stored; the flags follow."""
    calls = []

    def terminated(achieved, desired, info):
        calls.append((achieved.dtype, achieved.shape))
        return (achieved == desired).all(1)

    buffer = make(backend, obs_dtype="float64", compute_terminated=terminated)
    for k in range(3):
        buffer.push([0, -1, k], 0, 0, False, k == 2, [0, -1, k + 1])
    batch = buffer.sample(300)
    there = batch["next_obs"][:, 1] == batch["next_obs"][:, 2]
    assert there.any()
    np.testing.assert_array_equal(batch["terminated"], there)
    assert batch["truncated"].sum() == (batch["next_obs"][:, 2] == 3).sum()
    n = (batch["obs"][:, 1] != -1).sum()
    assert calls == [(np.float64, (n, 1))]


@both
@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (lambda n: np.zeros((n, 1)), ValueError, "the result of compute_reward must have"),
        (lambda n: 0.0, ValueError, "the result of compute_reward must have"),
        (lambda n: np.full(n, np.nan), ValueError, "the result of compute_reward must be finite"),
        (lambda n: np.full(n, 1e39), ValueError, "the result of compute_reward must fit float32"),
        (lambda n: None, TypeError, "the result of compute_reward must hold real numbers"),
    ],
)
def test_rewards_that_are_none_are_refused(backend, result, error, message):
    """By what gave them, and the buffer stays usable."""
    results = [result, np.zeros]
    buffer = make(backend, compute_reward=lambda a, d, info: results[0](len(a)))
    buffer.push([0, 0, 0], 0, 0, False, False, [0, 0, 1])
    with pytest.raises(error, match=message):
        buffer.sample(50)
    del results[0]
    assert len(buffer.sample(50)["obs"]) == 50
    failing = make(backend, compute_terminated=lambda a, d, info: False)
    failing.push([0, 0, 0], 0, 0, False, False, [0, 0, 1])
    with pytest.raises(ValueError, match="the result of compute_terminated must have"):
        failing.sample(50)


@both
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"compute_reward": None}, ValueError, "compute_reward or distance_thr.*, got neither"),
        ({"distance_threshold": 1.0}, ValueError, "compute_reward or distance_thr.*, got both"),
        ({"compute_reward": None, "distance_threshold": -1.0}, ValueError, "distance_threshold"),
        ({"compute_reward": None, "distance_threshold": np.nan}, ValueError, "distance_threshold"),
        ({"goal_selection_strategy": "random"}, ValueError, "must be one of future, final, epis"),
        ({"n_sampled_goal": 0}, ValueError, "n_sampled_goal"),
        ({"achieved_goal": 3}, ValueError, "achieved_goal must lie in"),
        ({"achieved_goal": -1}, ValueError, "achieved_goal must"),
        ({"desired_goal": 3}, ValueError, "desired_goal must lie in"),
        ({"desired_goal": 2}, ValueError, "must not overlap, got goals of 1 numbers at 2 and 2"),
        ({"goal_strategy": "future"}, TypeError, "goal_strategy"),
        ({"n_envs": 9}, ValueError, "n_envs"),
    ],
)
def test_bad_options_are_refused(backend, options, error, message):
    """With the option and what it may be."""
    with pytest.raises(error, match=message):
        make(backend, **options)


@both
def test_nothing_is_drawn_without_a_transition_or_stored_without_its_end(backend):
    """An empty buffer, a missing next observation, and a state that lacks one."""
    buffer = make(backend)
    with pytest.raises(RuntimeError, match="the buffer is empty"):
        buffer.sample(1)
    with pytest.raises(TypeError):
        buffer.push([0, 0, 0], 0, 0, False, False)
    buffer.push([0, 0, 0], 0, 0, False, False, [0, 0, 1])
    state = buffer.state()
    with pytest.raises(ValueError, match="hindsight needs the next observation of every"):
        buffer.set_state(state | {"has_next_obs": np.zeros(1, np.bool_)})
    with pytest.raises(ValueError, match="steps of some envs without those of the others"):
        make(backend, n_envs=2).set_state(state | {"n_envs": np.array([2], np.uint64)})


@both
def test_a_uniform_buffers_state_is_taken_over(backend):
    """What was collected without hindsight can be replayed with it."""
    module = reference if backend == "reference" else importlib.import_module("rlox_native")
    uniform = module.ReplayBuffer(CAPACITY, 3, 1, seed=0)
    for k in range(5):
        uniform.push([0, -1, k], k, 0, False, k == 2, [0, -1, k + 1])
    buffer = make(backend, goal_selection_strategy="final")
    buffer.set_state(uniform.state())
    batch = buffer.sample(100)
    goals = {(int(a[0]), o[1]) for a, o in zip(batch["actions"], batch["obs"], strict=True)}
    assert goals == {(k, g) for k in range(5) for g in (-1, 3 if k < 3 else 5)}


@pytest.mark.skipif(not NATIVE, reason="needs rlox-native")
def test_a_cycle_through_the_function_is_collected():
    """An env that holds the buffer that holds its method."""

    class Env:
        """Refers to itself by way of its buffer."""

        def __init__(self):
            self.buffer = make("native", compute_reward=self.reward)

        def reward(self, achieved, desired, info):
            return achieved[:, 0]

    gone = weakref.ref(Env())
    gc.collect()
    assert gone() is None
