"""The replay buffers against a queue, and NumPy's draws; their errors and states."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox_native import PrioritizedReplayBuffer, ReplayBuffer

BUFFERS = [ReplayBuffer, PrioritizedReplayBuffer]
both = pytest.mark.parametrize("cls", BUFFERS)


def transition(k, obs_shape=(3,), obs_dtype=np.float32):
    """The k-th transition, with arrays different from all others."""
    obs = np.full(obs_shape, k % 200, obs_dtype)
    return obs, float(k), k / 2, k % 3 == 0, k % 2 == 0, obs + obs_dtype(1)


def filled(cls, n, capacity=10, **options):
    """A buffer after n transitions."""
    buffer = cls(capacity, 3, 1, seed=0, **options)
    for k in range(n):
        buffer.push(*transition(k))
    return buffer


def assert_same(a, b):
    """Two dicts have the same keys, types and bytes."""
    assert a.keys() == b.keys()
    for key in a:
        np.testing.assert_array_equal(a[key], b[key], err_msg=key, strict=True)


@given(
    capacity=st.integers(1, 12),
    pushes=st.lists(st.integers(0, 7), max_size=12),
    shape=st.sampled_from([(), (1,), (3,), (2, 3), (5, 7)]),
    dtype=st.sampled_from([np.uint8, np.int32, np.int64, np.float32, np.float64]),
    prioritized=st.booleans(),
)
def test_a_buffer_holds_what_a_queue_holds(capacity, pushes, shape, dtype, prioritized):
    """The last transitions, and nothing else, by push (0) and push_batch."""
    cls = BUFFERS[prioritized]
    buffer = cls(capacity, shape, 1, obs_dtype=dtype)
    model = deque(maxlen=capacity)
    k = 0
    for n in pushes:
        rows = [transition(k + i, shape, dtype) for i in range(max(n, 1))]
        if n:
            buffer.push_batch(*map(np.array, zip(*rows, strict=True)))
        else:
            buffer.push(*rows[0])
        k += len(rows)
        model.extend(rows)
        assert len(buffer) == len(model)
    state = buffer.state()
    assert state["obs"].dtype == dtype
    position = int(state["position"][0])
    order = np.roll(np.arange(len(model)), -position if len(model) == capacity else 0)
    for slot, row in zip(order, model, strict=True):
        obs, action, reward, terminated, truncated, next_obs = row
        np.testing.assert_array_equal(state["obs"][slot], obs)
        np.testing.assert_array_equal(state["next_obs"][slot], next_obs)
        assert state["actions"][slot].tolist() == [action]
        assert state["rewards"][slot] == reward
        assert state["terminated"][slot] == terminated
        assert state["truncated"][slot] == truncated


@both
@pytest.mark.parametrize(
    "obs",
    [
        [1, 2, 3],
        (1.0, 2.0, 3.0),
        np.array([1, 2, 3], np.int8),
        np.array([1, 2, 3], np.uint64),
        np.array([1, 2, 3], np.float16),
        np.array([1, 2, 3], ">f8"),
        np.array([1, 9, 2, 9, 3, 9], np.float32)[::2],
    ],
)
def test_every_kind_of_real_numbers_is_an_observation(cls, obs):
    """Lists, tuples, and arrays of any type and layout, for every type of buffer."""
    for dtype in ("uint8", "int32", "int64", "float32", "float64"):
        buffer = cls(2, 3, 1, obs_dtype=dtype)
        buffer.push(obs, np.int64(1), np.float32(2), 1, 0.0, obs)
        buffer.push_batch([obs], [1], [2], [1], [0], [obs])
        assert buffer.sample(5)["obs"].tolist() == [[1, 2, 3]] * 5


GOOD = {"obs": [0.0] * 3, "action": 0, "reward": 0, "terminated": False, "truncated": False}


@both
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"obs": [0.0] * 4}, ValueError, "obs must have length 3 like obs_dim, got 4"),
        ({"obs": np.zeros((3, 1))}, ValueError, r"obs must have .* 3 like obs_dim, got \(3, 1\)"),
        ({"obs": [0, np.nan, 0]}, ValueError, "obs must be finite, .* at index 1"),
        ({"obs": [0, 0, 1e39]}, ValueError, r"obs must fit float32, got 1e.* at index 2"),
        ({"obs": [[1], [1, 2]]}, ValueError, "obs must be a rectangular array"),
        ({"action": [0, 0]}, ValueError, "action must have length 1 like act_dim, got 2"),
        ({"reward": np.nan}, ValueError, "reward must be finite"),
        ({"reward": "1"}, TypeError, "reward must be a real number"),
        ({"terminated": None}, TypeError, "terminated must be a real number"),
        ({"next_obs": [0.0] * 2}, ValueError, "next_obs must have length 3 like obs_dim, got 2"),
    ],
)
def test_a_bad_transition_is_refused_and_not_stored(cls, change, error, message):
    """The error has the argument's name, requirement and value."""
    buffer = cls(4, 3, 1)
    with pytest.raises(error, match=message):
        buffer.push(**GOOD | change)
    assert len(buffer) == 0


@both
@pytest.mark.parametrize(
    ("value", "dtype"), [(256, "uint8"), (-1, "uint8"), (0.5, "int32"), (2**31, "int32"),
                         (2.0**63, "int64"), (2**63, "int64"), (np.nan, "int64")]
)  # fmt: skip
def test_integers_are_neither_rounded_nor_wrapped(cls, value, dtype):
    """Numbers beyond an integer type are refused, alone and in an array."""
    buffer = cls(4, 1, 1, obs_dtype=dtype)
    for obs in (value, np.array([value])):
        with pytest.raises(ValueError, match=f"obs must fit {dtype}, got .* at index 0"):
            buffer.push(obs, 0, 0, False, False)
    assert len(buffer) == 0


ROWS = {
    "obs": np.zeros((2, 3)),
    "actions": np.zeros((2, 1)),
    "rewards": np.zeros(2),
    "terminated": np.zeros(2),
    "truncated": np.zeros(2),
    "next_obs": np.zeros((2, 3)),
}


@both
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs": np.zeros((3, 3))}, r"obs must have shape \(2, 3\) like rewards, got \(3, 3\)"),
        ({"actions": np.zeros(3)}, r"actions must have shape \(2, 1\) like rewards, got 3"),
        ({"rewards": np.zeros((2, 1))}, "rewards must have 1 dimension, got 2"),
        ({"rewards": [0.0, np.nan]}, "rewards must be finite, got .* at index 1"),
        ({"terminated": np.zeros(1)}, "terminated must have length 2 like rewards, got 1"),
    ],
)
def test_bad_rows_are_refused_and_none_is_stored(cls, change, message):
    """The error names the array; the rows before the bad one are not stored either."""
    buffer = cls(4, 3, 1)
    with pytest.raises(ValueError, match=message):
        buffer.push_batch(**ROWS | change)
    assert len(buffer) == 0
    buffer.push_batch(**ROWS | {"actions": np.zeros(2)})
    assert len(buffer) == 2


@both
def test_sampling_an_empty_buffer_is_refused(cls):
    """The remedy is in the message."""
    with pytest.raises(RuntimeError, match="the buffer is empty; push a transition before"):
        cls(4, 3, 1).sample(1)


@both
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ValueError, "batch_size must be at least 1, got 0"),
        ((1, -1), ValueError, "seed must lie in"),
        ((2**45,), MemoryError, "allocate"),
    ],
)
def test_a_bad_draw_is_refused_and_moves_no_stream(cls, arguments, error, message):
    """Size and seed are checked before anything is drawn."""
    buffer = filled(cls, 5)
    before = buffer.state()
    with pytest.raises(error, match=message):
        buffer.sample(*arguments)
    assert_same(buffer.state(), before)


@both
def test_unknown_next_observations_cannot_be_bootstrapped_from(cls):
    """While one is missing, a batch has none, and the error of a look-up says why."""
    buffer = filled(cls, 4, capacity=4)
    buffer.push(*transition(4)[:5])
    for _ in range(4):
        batch = buffer.sample(8)
        assert isinstance(batch, dict)
        assert "next_obs" not in batch
        with pytest.raises(KeyError, match="pushed without next_obs, so there is nothing"):
            batch["next_obs"]
        with pytest.raises(KeyError, match="'surplus'"):
            batch["surplus"]
        with pytest.raises(RuntimeError, match="pushed without next_obs"):
            buffer.sample(8, out=filled(cls, 1).sample(8))
        assert buffer.sample(8, out=dict(batch)).keys() == batch.keys()
        buffer.push(*transition(5))
    assert "next_obs" in buffer.sample(8)


@both
def test_out_receives_the_batch(cls):
    """The same arrays, whatever they held before."""
    buffer, other = filled(cls, 8), filled(cls, 8)
    out = {
        key: np.full_like(array, 7) if array.dtype != bool else np.full(9, 7, np.uint8).view(bool)
        for key, array in buffer.sample(9, seed=1).items()
    }
    arrays = dict(out)
    for seed in (None, 5, None):
        assert buffer.sample(9, seed, out=out) is out
        expected = other.sample(9, seed)
        assert all(out[key] is arrays[key] for key in out)
        assert {k: v.tobytes() for k, v in out.items()} == {
            k: v.tobytes() for k, v in expected.items()
        }


@both
@pytest.mark.parametrize(
    ("key", "array", "error", "message"),
    [
        ("obs", np.zeros((5, 3), np.float32), ValueError, r"obs must have shape \(4, 3\) like bat"),
        ("obs", np.zeros((4, 3)), TypeError, "obs must have dtype float32, got float64"),
        ("rewards", np.zeros(8, np.float32)[::2], ValueError, "rewards must be C-contiguous"),
        ("terminated", np.zeros(4, np.uint8), TypeError, "terminated must have dtype bool"),
        ("next_obs", [0], TypeError, "next_obs must be a NumPy array, got list"),
        ("next_obs", "same", ValueError, "must not share memory"),
        ("next_obs", "none", ValueError, "out must have the key next_obs"),
        ("rewards", "none", ValueError, "out must have the keys obs, .* got"),
    ],
)
def test_unfit_out_is_refused_and_moves_no_stream(cls, key, array, error, message):
    """The error names the array that does not fit."""
    buffer = filled(cls, 5)
    out = buffer.sample(4)
    before = buffer.state()
    if isinstance(array, str) and array == "none":
        del out[key]
    else:
        out[key] = out["obs"] if isinstance(array, str) else array
    with pytest.raises(error, match=message):
        buffer.sample(4, out=out)
    assert_same(buffer.state(), before)


@both
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 1, 1), ValueError, "capacity must be at least 1, got 0"),
        ((1, 0, 1), ValueError, "obs_dim must be at least 1, got 0"),
        ((1, (2, -1), 1), ValueError, "obs_dim must be at least 1, got -1"),
        ((1, (1,) * 40, 1), ValueError, "obs_dim must have fewer than 32 axes"),
        ((10**12, 10**6, 1), MemoryError, "not enough memory for capacity"),
        ((1, (2**40, 2**40), 1), MemoryError, "not enough memory for obs_dim"),
    ],
)
def test_impossible_sizes_are_refused(cls, arguments, error, message):
    """A size is an integer of at least 1, and a lack of memory never ends the process."""
    with pytest.raises(error, match=message):
        cls(*arguments)


@both
def test_impossible_types_and_seeds_are_refused(cls):
    """The message lists the possible types."""
    with pytest.raises(ValueError, match=r"obs_dtype must be one of uint8, int32.*got 'float16'"):
        cls(1, 1, 1, obs_dtype="float16")
    with pytest.raises(ValueError, match="act_dtype must be one of float32, int64, got 'uint8'"):
        cls(1, 1, 1, act_dtype="uint8")
    with pytest.raises(ValueError, match="obs_dtype must be one of"):
        cls(1, 1, 1, obs_dtype="no type")
    with pytest.raises(ValueError, match="seed must lie in"):
        cls(1, 1, 1, seed=-1)


@both
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs": np.zeros((5, 3))}, r"obs must have shape \(4, 3\)"),
        ({"obs": np.full((4, 3), np.nan, np.float32)}, "obs must be finite"),
        ({"has_next_obs": np.zeros(3, bool)}, "has_next_obs must have length 4"),
        ({"position": np.array([3], np.uint64)}, "position is not a valid state"),
        ({"position": np.array([2**64 - 1], np.uint64)}, "position is not a valid state"),
        ({"rng": np.zeros(6, np.uint64)}, "rng is not a valid state"),
        ({"surplus": np.zeros(1)}, "state must have the keys obs"),
    ],
)
def test_a_malformed_state_is_refused_whole(cls, change, message):
    """The error names an impossible part, and the buffer is unchanged."""
    buffer = filled(cls, 7)
    before = buffer.state()
    with pytest.raises(ValueError, match=message):
        buffer.set_state(filled(cls, 4).state() | change)
    with pytest.raises(ValueError, match="more transitions than the capacity"):
        buffer.set_state(filled(cls, 20, capacity=20).state())
    with pytest.raises(TypeError, match="state must be a dict"):
        buffer.set_state(None)
    assert_same(buffer.state(), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"priorities": np.array([1.0, 0.0])}, "a priority is positive"),
        ({"beta": np.array([2.0])}, r"beta must lie in \[0, 1\], got 2"),
        ({"alpha": np.array([0.5])}, "alpha must be 0.5 as in the state, got 0.6"),
    ],
)
def test_a_malformed_state_of_priorities_is_refused_whole(change, message):
    """Also priorities that do not yield probabilities."""
    buffer = filled(PrioritizedReplayBuffer, 2)
    before = buffer.state()
    with pytest.raises(ValueError, match=message):
        buffer.set_state(before | change)
    assert_same(buffer.state(), before)


@pytest.mark.parametrize("updated", [False, True])
def test_draws_are_in_proportion_to_priorities_to_the_power_alpha(updated):
    """Over many draws, frequencies follow equation 1, for pushed and updated priorities."""
    buffer, priorities = PrioritizedReplayBuffer(3, 3, 1, alpha=0.5, beta=1.0), [1.0, 4.0, 25.0]
    for k, priority in enumerate(priorities):
        buffer.push(*transition(k), priority=9.0 if updated else priority)
    if updated:
        buffer.update_priorities([0, 1, 2], priorities)
    counts = np.bincount(buffer.sample(80_000, seed=3)["indices"].astype(int))
    np.testing.assert_allclose(counts / 80_000, np.array([1, 2, 5]) / 8, atol=1e-3)


def test_a_new_transition_has_the_largest_priority_so_far():
    """1 at first; after an update, the largest given (algorithm 1, line 6)."""
    buffer = PrioritizedReplayBuffer(4, 3, 1, alpha=1.0)
    buffer.push(*transition(0))
    buffer.update_priorities([0], [0.5])
    buffer.push(*transition(1))
    buffer.update_priorities([1, 1], np.array([7, 2], np.int8))
    buffer.push_batch(*[np.array([x]) for x in transition(2)])
    assert buffer.state()["priorities"].tolist() == [0.5, 2.0, 7.0]
    assert buffer.state()["max_priority"].tolist() == [7.0]


@pytest.mark.parametrize("priority", [np.nan, np.inf, -np.inf, 1e39])
def test_impossible_priorities_are_refused_by_name(priority):
    """In every call, before anything changes."""
    buffer = filled(PrioritizedReplayBuffer, 3)
    before = buffer.state()
    with pytest.raises(ValueError, match=r"priority must be finite and at most 3\.4"):
        buffer.push(*transition(3), priority=priority)
    with pytest.raises(ValueError, match=r"priorities\[1\] must be finite and at most 3\.4"):
        buffer.push_batch(**ROWS, priorities=[1.0, priority])
    with pytest.raises(ValueError, match=r"priorities\[1\] must be finite and at most 3\.4"):
        buffer.update_priorities([0, 1], [5.0, priority])
    assert_same(buffer.state(), before)


@pytest.mark.parametrize(
    ("indices", "priorities", "error", "message"),
    [
        ([0, 3], [1.0, 1.0], ValueError, r"indices\[1\] must lie in \[0, 3\), got 3"),
        ([0, -1], [1.0, 1.0], ValueError, "indices must fit uint64, got -1 at index 1"),
        ([0, 1], [1.0], ValueError, "priorities must have length 2 like indices, got 1"),
        ([0.0, 1.0], [1.0, 1.0], TypeError, "indices must be integers, got dtype float64"),
        ([0], ["x"], TypeError, "priorities must hold real numbers"),
    ],
)
def test_bad_updates_are_refused_and_change_nothing(indices, priorities, error, message):
    """The error names the argument."""
    buffer = filled(PrioritizedReplayBuffer, 3)
    before = buffer.state()
    with pytest.raises(error, match=message):
        buffer.update_priorities(indices, priorities)
    assert_same(buffer.state(), before)
    buffer.update_priorities([], [])


def test_the_sizes_of_errors_are_priorities():
    """With either sign, in every call, and never too small to be drawn again."""
    buffer = PrioritizedReplayBuffer(9, 3, 1, alpha=1.0)
    for priority in (-2.0, 0.0, -1e-300, 0.5):
        buffer.push(*transition(0), priority=priority)
    buffer.push_batch(**ROWS, priorities=[-3.0, 0.0])
    assert buffer.state()["priorities"].tolist() == [2.0, 1e-6, 1e-6, 0.5, 3.0, 1e-6]
    buffer.update_priorities([0, 1, 2], [0.0, -0.25, 4])
    assert buffer.state()["priorities"].tolist() == [1e-6, 0.25, 4.0, 0.5, 3.0, 1e-6]
    assert buffer.state()["max_priority"].tolist() == [4.0]


@both
def test_a_state_of_other_envs_is_refused(cls):
    """Steps of one env would be taken for those of another."""
    options = {"n_step": 3, "gamma": 1.0}
    buffer = cls(8, 3, 1, n_envs=2, **options)
    buffer.push_batch(**ROWS)
    other = cls(8, 3, 1, **options)
    assert (buffer.n_envs, buffer.n_step, other.n_envs) == (2, 3, 1)
    with pytest.raises(ValueError, match="n_envs must be 2 as in the state, got 1"):
        other.set_state(buffer.state())
    assert len(other) == 0
    older = {key: array for key, array in buffer.state().items() if key != "n_envs"}
    again = cls(8, 3, 1, n_envs=2, **options)
    again.set_state(older)
    assert_same(again.state(), buffer.state())
