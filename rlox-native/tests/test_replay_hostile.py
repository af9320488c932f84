"""Hostile arguments: a buffer takes them or refuses them whole, with an error to expect."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from rlox_native import (
    HerReplayBuffer,
    MmapReplayBuffer,
    OfflineDatasetBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
)

EXPECTED = (ValueError, TypeError, MemoryError, RuntimeError)
"""And no other: no panic, no SystemError, no BufferError."""

DTYPES = st.sampled_from(
    ["?", "i1", "u1", "<i4", ">i8", "u8", "f2", "<f4", ">f4", "<f8", "g", "c8", "U3", "O", "M8[s]"]
)


@st.composite
def arrays(draw):
    """Arrays of any type and few elements, also transposed, reversed, repeated and read-only."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    dtype = np.dtype(draw(DTYPES))
    array = np.zeros(shape, dtype) if dtype.kind in "OUM" else draw(hnp.arrays(dtype, shape))
    change = draw(st.sampled_from(["as is", "transposed", "reversed", "repeated", "read-only"]))
    if change == "transposed":
        return array.T
    if change == "reversed" and array.ndim:
        return array[::-1]
    if change == "repeated":
        return np.broadcast_to(array, (2, *array.shape))
    if change == "read-only":
        array.flags.writeable = False
    return array


ANYTHING = st.one_of(
    arrays(),
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.lists(st.floats() | st.none() | st.integers(), max_size=4),
    st.sampled_from([object(), {}, ..., np.float64("nan"), np.array(None), [[1], [2, 3]], 2**80]),
)

OBS = hnp.arrays(np.float32, (3,), elements=st.floats(-9, 9, width=32)) | ANYTHING


def hindsight(capacity, obs_dim, act_dim, **options):
    """A hindsight buffer whose goals are the first two numbers of an observation."""
    return HerReplayBuffer(capacity, obs_dim, act_dim, 1, distance_threshold=1.0, **options)


BUFFERS = [ReplayBuffer, PrioritizedReplayBuffer, hindsight]


def assert_whole(buffer):
    """The buffer still works, and what it holds is finite."""
    assert len(buffer) == 0 or np.isfinite(buffer.sample(5)["obs"]).all()


def attempt(call, *args, **kwargs):
    """Return whether a call was accepted; any but an expected error is raised."""
    try:
        call(*args, **kwargs)
    except EXPECTED:
        return False
    return True


def attack(buffer, data):
    """Give a buffer of rows of three and actions of one whatever there is."""
    for _ in range(data.draw(st.integers(1, 4))):
        before = len(buffer)
        row = [data.draw(OBS), *(data.draw(ANYTHING) for _ in range(4)), data.draw(OBS)]
        stored = attempt(buffer.push, *row)
        assert len(buffer) == min(before + stored, 4)
        rows = [data.draw(ANYTHING) for _ in range(6)]
        before = len(buffer)
        assert attempt(buffer.push_batch, *rows) or len(buffer) == before
        attempt(buffer.sample, data.draw(ANYTHING), data.draw(ANYTHING))
        attempt(buffer.sample, 2, out=data.draw(ANYTHING))
        assert_whole(buffer)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_any_object_is_stored_or_refused(data):
    """In memory; by push, push_batch, sample and out."""
    cls = data.draw(st.sampled_from(BUFFERS))
    buffer = cls(4, 3, 1, seed=0)
    attack(buffer, data)
    if cls is hindsight:
        buffer.truncate_episodes()
    else:
        attempt(buffer.sample_sequences, data.draw(ANYTHING), data.draw(ANYTHING))
    if cls is PrioritizedReplayBuffer:
        attempt(buffer.update_priorities, data.draw(ANYTHING), data.draw(ANYTHING))
        attempt(buffer.set_beta, data.draw(ANYTHING))
    assert_whole(buffer)


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_any_object_is_stored_or_refused_over_a_file(data):
    """So it is where most of them lie on a disk."""
    with (
        TemporaryDirectory() as folder,
        MmapReplayBuffer(2, 4, 3, 1, Path(folder) / "cold", seed=0) as buffer,
    ):
        attack(buffer, data)


@settings(deadline=None)
@given(st.data())
def test_any_objects_are_a_dataset_or_refused(data):
    """Every part, and every option."""
    n = data.draw(st.integers(0, 4))
    good = [np.zeros((n, 3)), np.zeros((n, 3)), np.zeros(n), np.zeros(n), np.ones(n), np.zeros(n)]
    parts = [part if data.draw(st.booleans()) else data.draw(ANYTHING) for part in good]
    names = ["obs_dim", "act_dim", "obs_dtype", "act_dtype", "seed"]
    options = {name: data.draw(ANYTHING) for name in names if data.draw(st.integers(0, 3)) == 0}
    try:
        dataset = OfflineDatasetBuffer(*parts, data.draw(st.booleans()), **options)
    except EXPECTED:
        return
    assert len(dataset.sample(3)["rewards"]) == 3
    attempt(dataset.sample_trajectories, data.draw(ANYTHING), data.draw(ANYTHING))
    assert dataset.stats()["n_transitions"] == len(dataset)


@settings(deadline=None)
@given(st.data())
def test_any_state_is_restored_or_refused_whole(data):
    """A state with any of its parts replaced, or left out."""
    buffer = data.draw(st.sampled_from(BUFFERS))(4, 3, 1, seed=0)
    for k in range(6):
        buffer.push(np.full(3, k), k, k, False, k == 3, np.full(3, k))
    state = buffer.state()
    for key in data.draw(st.lists(st.sampled_from(sorted(state)), min_size=1, max_size=3)):
        if data.draw(st.booleans()):
            state[key] = data.draw(ANYTHING)
        else:
            state.pop(key, None)
    before = {key: array.tobytes() for key, array in buffer.state().items()}
    if not attempt(buffer.set_state, state):
        assert {key: array.tobytes() for key, array in buffer.state().items()} == before
    assert_whole(buffer)


@settings(deadline=None)
@given(st.data())
def test_any_rows_of_streams_are_stored_or_refused_whole(data):
    """Sizes, rows, draws, write-back and states; what was refused has changed nothing."""
    fields = {"obs": ((3,), "float32"), "flag": ((), "bool"), "small": ((2,), ">i2")}
    options = {"declared": ["obs"], "n_envs": 2, "online_length": 2, "seed": 0}
    names = ["capacity", "fields", *options]
    changed = {name: data.draw(ANYTHING) for name in names if data.draw(st.integers(0, 5)) == 0}
    attempt(SequenceReplayBuffer, **{"capacity": 9, "fields": fields, **options, **changed})
    attempt(SequenceReplayBuffer, 9, {"x": data.draw(ANYTHING)})
    attempt(SequenceReplayBuffer, 9, {"x": (data.draw(ANYTHING), data.draw(ANYTHING))})
    buffer = SequenceReplayBuffer(9, fields, **options)
    row = {"obs": np.ones((2, 3)), "flag": [True, False], "small": np.ones((2, 2))}
    for _ in range(6):
        buffer.push(row, [0, 1])
    for _ in range(data.draw(st.integers(1, 4))):
        before = {key: array.tobytes() for key, array in buffer.state().items()}
        bad = {key: data.draw(ANYTHING) for key in row if data.draw(st.booleans())}
        state = buffer.state()
        broken = {key: data.draw(ANYTHING) for key in state if data.draw(st.integers(0, 3)) == 0}
        calls = {
            "push": ({**row, **bad}, data.draw(st.just([0, 1]) | ANYTHING)),
            "update": (data.draw(ANYTHING), {"obs": data.draw(ANYTHING)}),
            "set_state": ({**state, **broken},),
            "sample": (data.draw(ANYTHING), data.draw(ANYTHING), data.draw(ANYTHING)),
            "rows": (data.draw(ANYTHING), data.draw(ANYTHING)),
            "changed_rows": (data.draw(ANYTHING),),
        }
        name = data.draw(st.sampled_from(sorted(calls)))
        if not attempt(getattr(buffer, name), *calls[name]):
            assert {key: array.tobytes() for key, array in buffer.state().items()} == before
        assert buffer.sample(3, 2)["obs"].shape == (3, 3, 3)


@settings(deadline=None)
@given(sizes=st.tuples(ANYTHING, ANYTHING, ANYTHING), options=st.data())
def test_any_size_makes_a_buffer_or_is_refused(sizes, options):
    """Also those that no machine has the memory for."""
    cls = options.draw(st.sampled_from([ReplayBuffer, PrioritizedReplayBuffer]))
    names = ["obs_dtype", "act_dtype", "n_envs", "n_step", "gamma", "seed"]
    given_ = {name: options.draw(ANYTHING) for name in names if options.draw(st.booleans())}
    attempt(cls, *sizes, **given_)
    attempt(cls.memory_bytes, *sizes)


@settings(deadline=None)
@given(st.data())
def test_any_function_of_goals_is_believed_or_refused(data):
    """What it is, what it gives back, and every option of goals."""
    names = [
        "compute_terminated", "distance_threshold", "n_sampled_goal", "goal_selection_strategy",
        "achieved_goal", "desired_goal", "n_envs", "capacity",
    ]  # fmt: skip
    options = {name: data.draw(ANYTHING) for name in names if data.draw(st.integers(0, 7)) == 0}
    reward = data.draw(ANYTHING) if data.draw(st.integers(0, 7)) == 0 else lambda *_: result
    result = data.draw(ANYTHING)
    try:
        buffer = HerReplayBuffer(options.pop("capacity", 4), 3, 1, 1, reward, **options)
    except EXPECTED:
        return
    attempt(buffer.push, np.zeros(3), 0, 0, False, False, np.ones(3))
    attempt(buffer.sample, data.draw(st.integers(1, 9)))
    assert len(buffer.state()["rewards"]) == len(buffer)


def test_a_function_of_goals_may_use_the_buffer_and_fail():
    """No lock is held while it runs, and its own error comes through."""

    def reward(achieved, desired, info):
        buffer.push(np.ones(3), 0, 0, False, True, np.ones(3))
        if len(buffer) == 4:
            raise KeyError("mine")
        return buffer.sample(len(achieved), 0)["rewards"] * 0

    buffer = HerReplayBuffer(4, 3, 1, 1, reward)
    buffer.push(np.zeros(3), 0, 0, False, False, np.ones(3))
    with pytest.raises(KeyError, match="mine"):
        buffer.sample(20)
    assert len(buffer) == 4


@pytest.mark.parametrize("cls", BUFFERS)
def test_threads_do_everything_at_once(cls):
    """Draws, sequences, pushes, states and restores; every batch is whole."""
    sequences = cls is not hindsight
    buffer, stop = cls(32, 3, 1, seed=0), threading.Event()

    def push(k):
        rows = np.repeat(np.arange(k, k + 8.0)[:, None], 3, 1)
        buffer.push_batch(rows, rows[:, :1], rows[:, 0], np.zeros(8), np.zeros(8), rows + 1)

    push(0)
    state = buffer.state()

    def work(worker):
        turns = 0
        while not stop.is_set() and turns < 300:
            turns += 1
            if worker == 0:
                push(turns)
            elif worker == 1:
                buffer.set_state(state if turns % 2 else buffer.state())
            else:
                pieces = worker == 3 and sequences
                batch = buffer.sample_sequences(4, 4) if pieces else buffer.sample(16)
                there = batch.get("mask", np.ones(batch["rewards"].shape, bool))
                # the last number, which no goal replaces
                obs, next_obs = batch["obs"][..., 2:], batch["next_obs"][..., 2:]
                np.testing.assert_array_equal(obs, batch["actions"])
                np.testing.assert_array_equal(next_obs[there], obs[there] + 1)
        return worker

    try:
        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(work, range(4))) == [0, 1, 2, 3]
    finally:
        stop.set()
