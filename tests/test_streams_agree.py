"""The Rust buffer of streams draws, stores, saves and refuses what the NumPy reference does."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rlox_native
from hypothesis import example, given
from hypothesis import strategies as st
from rlox.kernels import reference

CLASSES = (rlox_native.SequenceReplayBuffer, reference.SequenceReplayBuffer)
FIELDS = {
    "image": ((3, 2), np.uint8), "number": ((), np.float64), "small": ((2,), np.int16),
    "flag": ((), np.bool_), "memory": ((2,), np.float32),
}  # fmt: skip


def make(cls, n_envs, **options):
    """Return a buffer of ten rows per env."""
    declared = ["memory", "small"]
    return cls(10 * n_envs, FIELDS, declared=declared, n_envs=n_envs, **{"seed": 3, **options})


def rows(rng, count):
    """Return rows whose numbers are of other types than the fields."""
    return {
        "image": rng.integers(0, 256, (count, 3, 2)),
        "number": rng.standard_normal(count).astype(np.float32),
        "small": rng.integers(-99, 99, (count, 2)).tolist() if count else np.zeros((0, 2)),
        "flag": rng.random(count) < 0.5,
        "memory": rng.standard_normal((2, count)).T,
    }


def assert_same(got, expected):
    """Compare arrays by name, bit for bit and type for type."""
    assert list(got) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array, strict=True)


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 12), st.integers(0, 3))
@example(3, 2, 1, 1)  # a push of no env follows a draw behind which an overwritten row is queued
def test_draws_and_states_are_those_of_the_reference(seed, n_envs, length, online):
    """Whatever is pushed, drawn, written back, saved and restored in turns."""
    rng = np.random.default_rng(seed)
    options = {"online_length": length if online else None}
    buffers = [make(cls, n_envs, **options) for cls in CLASSES]
    mark = 0
    for _ in range(30):
        envs = np.flatnonzero(rng.random(n_envs) < 0.7)
        pushed = rows(rng, len(envs))
        for buffer in buffers:
            buffer.push(pushed, envs)
        if rng.random() < 0.3:
            drawn_seed = None if rng.random() < 0.7 else int(rng.integers(2**63))
            size = int(rng.integers(1, 6))
            if length >= 10 or max(buffers[1].rest()["totals"]) <= length:
                for buffer in buffers:
                    with pytest.raises(ValueError, match=f"need {length + 1} rows of one env"):
                        buffer.sample(size, length, drawn_seed)
                continue
            expected = buffers[1].sample(size, length, drawn_seed)
            assert_same(buffers[0].sample(size, length, drawn_seed), expected)
            indices = expected["indices"][:, 1:]
            indices = np.where(rng.random(indices.shape) < 0.2, indices - 20, indices)
            marks = rng.standard_normal((*indices.shape, 2))
            for buffer in buffers:
                buffer.update(indices, {"memory": marks, "small": (9 * marks).astype(np.int64)})
        changed = [buffer.changed_rows(mark) for buffer in buffers]
        assert changed[0] == changed[1]
        mark = changed[0][0] if rng.random() < 0.5 else mark
        if rng.random() < 0.2:
            state = buffers[1].state()
            buffers, mark = [make(cls, n_envs, **options, seed=None) for cls in CLASSES], 0
            for buffer in buffers:
                buffer.set_state(state)
        assert_same(buffers[0].state(), buffers[1].state())
        filled = buffers[0].changed_rows(0)[1]
        assert_same(buffers[0].rows(filled // 3, filled), buffers[1].rows(filled // 3, filled))
        assert_same(buffers[0].rest(), buffers[1].rest())
    assert len(buffers[0]) == len(buffers[1])
    assert (buffers[0].capacity, buffers[0].nbytes, buffers[0].n_envs) == (
        buffers[1].capacity, buffers[1].nbytes, n_envs
    )  # fmt: skip


def wrong_calls():
    """Return calls that a buffer refuses."""
    rng = np.random.default_rng(0)
    good, state = rows(rng, 1), filled(CLASSES[1]).state()
    many = {name: np.repeat(np.asarray(value), 2, 0) for name, value in good.items()}

    def restoring(**change):
        return lambda b: b.set_state({**state, **change})

    return [
        ("no field", lambda b: b.push({"number": [0]}, [0])),
        ("unknown field", lambda b: b.push({**good, "other": [1]}, [0])),
        ("text", lambda b: b.push({**good, "number": ["x"]}, [0])),
        ("env beyond", lambda b: b.push(good, [2])),
        ("env twice", lambda b: b.push(many, [0, 0])),
        ("env of floats", lambda b: b.push(good, [0.0])),
        ("rows are no mapping", lambda b: b.push([1], [0])),
        ("bool size", lambda b: b.sample(True, 2)),
        ("too long", lambda b: b.sample(2, 10)),
        ("huge length", lambda b: b.sample(2, 2**62)),
        ("update shape", lambda b: b.update([[0]], {"memory": [[1, 2]]})),
        ("update after a good one",
         lambda b: b.update([[0]], {"memory": [[[1, 2]]], "small": [[1]]})),
        ("indices of floats", lambda b: b.update([[0.5]], {"memory": [[[1, 2]]]})),
        ("rows beyond", lambda b: b.rows(0, 21)),
        ("no state", lambda b: b.set_state({})),
        ("totals short", restoring(totals=[1])),
        ("totals huge", restoring(totals=[2**62, 3])),
        ("totals of fewer rows", restoring(totals=[3, 3])),
        ("queued ahead", restoring(queued=[99, 0])),
        ("queue of three", restoring(queue=[[0, 1, 2]])),
        ("queue of a stranger", restoring(queue=[[2, 0]])),
        ("queue ahead", restoring(queue=[[0, 11]])),
        ("rng", restoring(rng=np.zeros(6, np.uint64))),
        ("row shape", restoring(**{"row memory": np.zeros((3, 2))})),
    ]  # fmt: skip


def filled(cls):
    """Return a buffer of two envs with 12 rows of each."""
    rng, buffer = np.random.default_rng(0), make(cls, 2, online_length=3)
    for _ in range(12):
        buffer.push(rows(rng, 2), [0, 1])
    return buffer


@pytest.mark.parametrize("cls", CLASSES, ids=["native", "reference"])
@pytest.mark.parametrize("call", [pytest.param(call, id=name) for name, call in wrong_calls()])
def test_wrong_calls_are_refused_and_change_nothing(cls, call):
    """Both implementations refuse them, and are as they were."""
    buffer = filled(cls)
    before = buffer.state()
    with pytest.raises((ValueError, TypeError, AttributeError)):
        call(buffer)
    assert_same(buffer.state(), before)
    buffer.sample(2, 3)


@pytest.mark.parametrize("cls", CLASSES, ids=["native", "reference"])
@pytest.mark.parametrize(
    ("capacity", "fields", "options"),
    [
        (1, FIELDS, {}), (5, FIELDS, {"n_envs": 3}), (0, FIELDS, {}), (9, FIELDS, {"n_envs": 0}),
        (9, FIELDS, {"declared": ["other"]}), (9, FIELDS, {"online_length": 0}),
        (9, {"text": ((), "U3")}, {}), (9, {"comma": ((), ",")}, {}),
        (9, {"thing": ((), object)}, {}), (9, {"zero": ((0,), "f4")}, {}),
        (9, FIELDS, {"seed": -1}),
    ],
)  # fmt: skip
def test_impossible_buffers_are_refused(cls, capacity, fields, options):
    """By both implementations."""
    with pytest.raises((ValueError, TypeError)):
        cls(capacity, fields, **options)


def test_a_buffer_beyond_all_memory_is_refused():
    """Before anything is reserved."""
    with pytest.raises(MemoryError, match="keep fewer rows"):
        rlox_native.SequenceReplayBuffer(2**50, FIELDS)
    with pytest.raises(MemoryError):
        filled(rlox_native.SequenceReplayBuffer).sample(2**61, 3)


def test_threads_do_everything_at_once():
    """Pushes, draws, write-back, saves and restores; every sequence is whole."""
    fields = {"number": ((), np.int64), "memory": ((64,), np.float32)}
    buffer = rlox_native.SequenceReplayBuffer(64, fields, declared=["memory"], n_envs=2, seed=0)
    pushed = threading.Lock()

    def push():
        with pushed:  # a row's number follows from those before
            total = int(buffer.rest()["totals"][0])
            buffer.push({"number": [total] * 2, "memory": np.full((2, 64), total)}, [0, 1])

    def work(worker):
        for _ in range(200):
            if worker == 0:
                push()
            elif worker == 1:
                with pushed:
                    buffer.set_state(buffer.state())
            else:
                batch = buffer.sample(4, 5)
                assert (np.diff(batch["number"]) == 1).all()
                assert (batch["memory"] == batch["memory"][..., :1]).all()
                buffer.update(batch["indices"], {"memory": batch["memory"]})
        return worker

    for _ in range(8):
        push()
    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(work, range(4))) == [0, 1, 2, 3]
