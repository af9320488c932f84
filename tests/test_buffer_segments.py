"""Rows of replay buffers by slot: in Rust as in NumPy, for all ways of drawing."""

import numpy as np
import pytest
import rlox_native
from hypothesis import given
from hypothesis import strategies as st
from rlox.kernels import reference
from rlox.protocols import SegmentedBuffer
from rlox_testing.probes import first_difference

CAPACITY, N_ENVS = 12, 2
KINDS = ("ReplayBuffer", "PrioritizedReplayBuffer", "HerReplayBuffer")


def make(module, kind, seed=0):
    """Return a small buffer."""
    if kind == "HerReplayBuffer":
        return module.HerReplayBuffer(
            CAPACITY, 3, 1, 1, distance_threshold=0.5, n_envs=N_ENVS, seed=seed
        )
    return getattr(module, kind)(CAPACITY, 3, 1, n_envs=N_ENVS, seed=seed)


def push(buffer, step, n=N_ENVS):
    """Push one step of every env."""
    numbers = step * n + np.arange(n, dtype=np.float32)
    obs = np.repeat(numbers[:, None], 3, 1)
    buffer.push_batch(obs, numbers[:, None], numbers, numbers % 5 == 0, numbers % 3 == 0, obs + 1)


def whole(buffer):
    """Return the state from its parts, the rows in three pieces."""
    _, count, _ = buffer.changed_rows(0)
    pieces = [
        buffer.rows(*ends)
        for ends in ((0, count // 3), (count // 3, count // 2), (count // 2, count))
    ]
    rows = {key: np.concatenate([piece[key] for piece in pieces]) for key in pieces[0]}
    return {**buffer.rest(), **rows}


@pytest.mark.parametrize("kind", KINDS)
@given(steps=st.lists(st.integers(0, 9), max_size=6))
def test_rust_and_numpy_agree(kind, steps):
    """Marks, ranges, rows and the rest are the same after any pushes and restored states."""
    both = [make(module, kind) for module in (rlox_native, reference)]
    marks, number = [0, 0], 0
    for count in steps:
        for buffer in both:
            for step in range(count):
                push(buffer, number + step)
            if count == 3:
                buffer.set_state(buffer.state())
            if count == 4 and hasattr(buffer, "truncate_episodes"):
                buffer.truncate_episodes()
        number += count
        changes = [buffer.changed_rows(mark) for buffer, mark in zip(both, marks, strict=True)]
        assert changes[0][:2] == changes[1][:2]
        assert sorted(changes[0][2]) == sorted(changes[1][2])
        marks = [change[0] for change in changes]
        for buffer in both:
            assert isinstance(buffer, SegmentedBuffer)
            assert first_difference(buffer.state(), whole(buffer)) is None
        assert first_difference(whole(both[0]), whole(both[1])) is None


def test_truncated_episodes_count_as_changed():
    """The newest step of every env is among the ranges, though nothing was pushed."""
    buffer = make(rlox_native, "HerReplayBuffer")
    for step in range(7):
        push(buffer, step)
    mark, _, _ = buffer.changed_rows(0)
    buffer.truncate_episodes()
    assert buffer.changed_rows(mark)[2] == [(0, 2)]


@pytest.mark.parametrize("count", [0, 12, 40])
@pytest.mark.parametrize("hot", [1, 5])
def test_buffer_in_a_file_is_saved_and_restored(tmp_path, count, hot):
    """Its state is that of a buffer in memory, some next observations unknown, and so are draws."""

    def mapped(name, seed):
        return rlox_native.MmapReplayBuffer(hot, CAPACITY, 3, 1, tmp_path / name, seed=seed)

    model, buffer = rlox_native.ReplayBuffer(CAPACITY, 3, 1, seed=0), mapped("a", 0)
    for number in range(count):
        row = [np.full(3, number), number, number, number % 5 == 0, number % 3 == 0]
        row += [] if number % 4 == 1 else [np.full(3, number + 1)]
        model.push(*row), buffer.push(*row)
    assert first_difference(model.state(), buffer.state()) is None
    assert first_difference(model.state(), whole(buffer)) is None
    other = mapped("b", 1)
    for number in range(7):
        push(other, number, 1)
    mark, _, _ = other.changed_rows(0)
    other.set_state(model.state())
    assert first_difference(model.state(), other.state()) is None
    covered = {slot for start, stop in other.changed_rows(mark)[2] for slot in range(start, stop)}
    assert covered == set(range(min(count, CAPACITY)))
    for number in range(20):
        push(model, number, 1), push(other, number, 1)
        drawn, expected = other.sample(6), model.sample(6)
        assert first_difference(dict(expected), dict(drawn)) is None
    assert first_difference(model.state(), other.state()) is None


def test_kept_file_is_not_replaced_by_a_state(tmp_path):
    """A buffer with keep goes on from its own file."""
    with rlox_native.MmapReplayBuffer(2, CAPACITY, 3, 1, tmp_path / "a", keep=True) as buffer:
        push(buffer, 0)
        before = buffer.state()
        with pytest.raises(ValueError, match="a buffer with keep goes on from its own file"):
            buffer.set_state(rlox_native.ReplayBuffer(CAPACITY, 3, 1).state())
        assert first_difference(before, buffer.state()) is None


@pytest.mark.parametrize("slots", [(0, 5), (4, 5), (3, 2), (2**40, 2**41)])
@pytest.mark.parametrize("module", [rlox_native, reference])
def test_slots_that_are_not_filled_are_refused(module, slots):
    """Four rows are stored."""
    buffer = make(module, "ReplayBuffer")
    push(buffer, 0), push(buffer, 1)
    with pytest.raises((ValueError, MemoryError)):
        buffer.rows(*slots)
    assert len(buffer.rows(1, 4)["rewards"]) == 3
