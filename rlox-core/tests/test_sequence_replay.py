"""The replay buffer of streams: what it returns, its queue, write-back and state."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox import testing
from rlox.errors import ConfigError, MemoryLimitError
from rlox.kernels.reference.replay.streams import SequenceReplayBuffer
from rlox.replay.buffers import BufferOptions, SequenceOptions, make_buffer, make_sequence_buffer

FIELDS = {"number": ((), np.int64), "env": ((), np.int64), "memory": ((2,), np.float32)}

ASKED = SequenceOptions(
    capacity=40, fields=FIELDS, declared=("memory",), n_envs=2, online_length=None, seed=0
)
TRANSITIONS = BufferOptions(
    capacity=40, obs_shape=(2,), obs_dtype="float32", act_shape=(1,), act_dtype="float32",
    n_envs=1, n_step=1, gamma=0.9, seed=0,
)  # fmt: skip


def make(capacity=40, **options):
    """Return a buffer whose rows say which they are."""
    return SequenceReplayBuffer(capacity, FIELDS, declared=["memory"], **{"seed": 0, **options})


def push(buffer, counts, envs):
    """Append the next row of some envs."""
    rows = {
        "number": [counts[i] for i in envs],
        "env": envs,
        "memory": np.zeros((len(envs), 2)),
    }
    buffer.push(rows, envs)
    for i in envs:
        counts[i] += 1


@given(
    st.lists(st.lists(st.integers(0, 2), unique=True, max_size=3), max_size=80),
    st.integers(1, 6),
    st.booleans(),
)
def test_sequences_are_consecutive_rows_of_one_env_that_are_stored(pushes, length, online):
    """Whatever envs pushed when; streams may have different lengths."""
    buffer = make(30, n_envs=3, online_length=length if online else None)
    counts = [0, 0, 0]
    for envs in pushes:
        push(buffer, counts, envs)
    assert len(buffer) == sum(min(count, 10) for count in counts)
    if max(counts) <= length or length >= 10:
        with pytest.raises(ValueError, match=f"need {length + 1} rows"):
            buffer.sample(1, length)
        return
    batch = buffer.sample(16, length)
    assert batch["number"].shape == (16, length + 1)
    assert (np.diff(batch["number"]) == 1).all()
    assert (batch["env"] == batch["env"][:, :1]).all()
    for env, numbers in zip(batch["env"][:, 0], batch["number"], strict=True):
        assert max(counts[env] - 10, 0) <= numbers[0]
        assert numbers[-1] < counts[env]


def test_all_starts_are_equally_probable():
    """Of streams of different lengths too."""
    buffer, counts = make(200, n_envs=2), [0, 0]
    for _ in range(10):
        push(buffer, counts, [0, 1])
    for _ in range(20):
        push(buffer, counts, [0])
    batch = buffer.sample(20_000, 4)
    starts = batch["number"][:, 0] + 100 * batch["env"][:, 0]
    _, drawn = np.unique(starts, return_counts=True)
    assert len(drawn) == (30 - 4) + (10 - 4)
    assert abs(drawn / 20_000 - 1 / 32).max() < 0.006


@pytest.mark.parametrize("n_envs", [1, 3])
def test_changed_slots_are_those_of_pushes_and_updates(n_envs):
    """A copy that takes over only what changed is the state, at any time."""
    rng = np.random.default_rng(0)
    buffer, counts = make(900, n_envs=n_envs), [0] * n_envs
    copy = {}
    mark = 0
    for k in range(40):
        for _ in range(int(rng.integers(40))):
            envs = np.flatnonzero(rng.random(n_envs) < 0.8).tolist()
            push(buffer, counts, envs)
        if k > 5:
            drawn = buffer.sample(2, 3)
            buffer.update(drawn["indices"], {"memory": rng.random((2, 4, 2))})
        mark, filled, ranges = buffer.changed_rows(mark)
        for name in ("row number", "row env", "row memory"):
            whole = np.zeros_like(buffer.rows(0, filled)[name])
            old = copy.get(name, whole[:0])
            whole[: len(old)] = old[: len(whole)]
            for start, stop in ranges:
                whole[start:stop] = buffer.rows(start, stop)[name]
            copy[name] = whole
            np.testing.assert_array_equal(whole, buffer.state()[name])
    assert buffer.changed_rows(mark)[2] == []
    with pytest.raises(ValueError, match="slots must lie in"):
        buffer.rows(0, 10_000)


@pytest.mark.parametrize("buffer", ["sequence", lambda asked: SequenceReplayBuffer(**vars(asked))])
def test_our_buffers_conform(buffer):
    """That of the kernel backend, by name, and the reference."""
    assert testing.check_sequence_buffer(buffer) == {}


class Shifted(SequenceReplayBuffer):
    """Writes states to the rows after their own."""

    def update(self, indices, fields):
        """Write one row on."""
        super().update(np.asarray(indices) + self.n_envs, fields)


class Careless(SequenceReplayBuffer):
    """Writes to the slots of rows that were overwritten since."""

    def update(self, indices, fields):
        """Write to whatever is there."""
        share = self.capacity // self.n_envs
        totals, rows = self.rest()["totals"], np.asarray(indices)
        while (old := rows // self.n_envs < totals[rows % self.n_envs] - share).any():
            rows = np.where(old, rows + self.capacity, rows)
        super().update(rows, fields)


class Seedless(SequenceReplayBuffer):
    """Draws by its own stream whatever the seed."""

    def sample(self, batch_size, length, seed=None):
        """Leave out the seed."""
        return super().sample(batch_size, length)


class Forgetful(SequenceReplayBuffer):
    """Saves no queue."""

    def state(self):
        """Return an empty queue."""
        return {**super().state(), "queue": np.zeros((0, 2))}


class Late(SequenceReplayBuffer):
    """Has no queue."""

    def __init__(self, *args, **options):
        super().__init__(*args, **{**options, "online_length": None})


class Mixed(SequenceReplayBuffer):
    """Stores one field of the row before."""

    def push(self, rows, envs):
        """Shift the images."""
        super().push({**rows, "obs": np.asarray(rows["obs"]) - 1}, envs)


@pytest.mark.parametrize(
    ("faulty", "said"),
    [
        (Shifted, "a state was written to"), (Careless, "has replaced its own"),
        (Seedless, "must fix the draw"), (Forgetful, "must go on exactly"),
        (Late, "new sequences must come first"), (Mixed, "are mixed up"),
    ],
)  # fmt: skip
def test_every_fault_is_caught(faulty, said):
    """By the check that it concerns."""
    with pytest.raises(AssertionError, match=said):
        testing.check_sequence_buffer(lambda asked: faulty(**vars(asked)))


def test_buffers_of_transitions_and_of_sequences_are_not_mixed_up():
    """A name of the other kind is an error with the remedy."""
    with pytest.raises(ConfigError, match="take buffer='sequence'"):
        make_sequence_buffer("uniform", ASKED)
    with pytest.raises(ConfigError, match="take buffer='uniform'"):
        make_buffer("sequence", TRANSITIONS)
    with pytest.raises(MemoryLimitError, match="keep fewer rows"):
        make_sequence_buffer("sequence", replace(ASKED, capacity=2**50))
