"""Hostile arguments: every function and method accepts them or raises an ordinary error.

``RLOX_EXAMPLES`` says how many calls each is given.
"""

import contextlib
import inspect
import itertools
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import rlox_native
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from rlox_native import (
    HerReplayBuffer,
    MmapReplayBuffer,
    OfflineDatasetBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
    _native,
)

# NumPy's warning on numbers beyond single precision
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in cast:RuntimeWarning")

EXPECTED = (ValueError, TypeError, MemoryError, RuntimeError, OverflowError)
"""Only these: no panic, SystemError or BufferError."""

BUFFERS = [name for name in rlox_native.__all__ if name.endswith("Buffer")]
FUNCTIONS = [name for name in rlox_native.__all__ if name.islower() and name != "__version__"]
INSTANCES = {
    "CartPole": lambda: rlox_native.CartPole(seed=0),
    "VecEnv": lambda: rlox_native.VecEnv(2, seed=0),
    "MultiAgentVecEnv": lambda: rlox_native.MultiAgentVecEnv(2, seed=0),
    "RunningMeanStd": lambda: rlox_native.RunningMeanStd((2,)),
    "PackedSequences": lambda: rlox_native.pack_sequences([1, 2], 3),
    "ActorCriticLearner": lambda: rlox_native.ActorCriticLearner(3, (4,), n_actions=2),
    "QLearner": lambda: rlox_native.QLearner(3, (4,), 2),
    "ContinuousLearner": lambda: rlox_native.ContinuousLearner(3, 1, (4,), 2),
    "ImplicitLearner": lambda: rlox_native.ImplicitLearner(3, 1, (4,), 2, log_std_bounds=(-5, 2)),
}
DTYPES = st.sampled_from(
    ["?", "i1", "u1", "<i4", ">i8", "u8", "f2", "<f4", ">f4", "<f8", "g", "c8", "U3", "O", "M8[s]"]
)
LAYOUTS = st.sampled_from(["as is", "transposed", "reversed", "strided", "repeated", "read-only"])
SIZES = st.integers(-2, 40) | st.sampled_from([2**31, 2**32, 2**62, 2**63, 2**64, 2**80])


@st.composite
def arrays(draw):
    """Arrays of any type and layout, mostly with matching shapes."""
    shape = draw(st.sampled_from([(), (4,), (4,), (4, 2), (4, 2), (2,), (0,), (2, 0), (3, 4, 2)]))
    dtype = np.dtype(draw(DTYPES | st.sampled_from(["<f4", "<f8"])))
    array = np.zeros(shape, dtype) if dtype.kind in "OUM" else draw(hnp.arrays(dtype, shape))
    layout = draw(LAYOUTS)
    if layout == "transposed":
        return array.T
    if layout == "reversed" and array.ndim:
        return array[::-1]
    if layout == "strided" and array.ndim:
        return np.repeat(array, 2, 0)[::2]
    if layout == "repeated":
        return np.broadcast_to(array, (2, *array.shape))
    if layout == "read-only":
        array.flags.writeable = False
    return array


ANYTHING = st.one_of(
    arrays(),
    st.none(),
    st.booleans(),
    SIZES,
    st.floats(),
    st.text(max_size=3),
    st.lists(st.floats() | st.none() | SIZES, max_size=4),
    st.tuples(arrays(), arrays()),
    st.sampled_from([object(), {}, ..., np.float64("nan"), np.array(None), [[1], [2, 3]], b"x"]),
)


def names_of(function):
    """The names of a function's parameters without self."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name != "self"]


def attack(function, names, data):
    """Call a function with arbitrary values for some of its parameters."""
    arguments = {name: data.draw(ANYTHING, name) for name in names if data.draw(st.integers(0, 4))}
    with contextlib.suppress(*EXPECTED):
        function(**arguments)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(data=st.data())
def test_any_object_is_computed_with_or_refused(name, data):
    """By every function."""
    function = getattr(rlox_native, name)
    attack(function, names_of(function), data)


@pytest.mark.parametrize("name", sorted(INSTANCES))
@given(data=st.data())
def test_any_object_makes_an_instance_or_is_refused(name, data):
    """By every class except the buffers."""
    cls = getattr(rlox_native, name)
    if name != "PackedSequences":  # has no constructor
        attack(cls, names_of(cls), data)


@pytest.mark.parametrize("name", sorted(INSTANCES))
@given(data=st.data())
def test_any_call_of_a_method_is_carried_out_or_refused(name, data):
    """One call after the other on one instance, which stays usable."""
    instance = INSTANCES[name]()
    methods = [key for key in dir(type(instance)) if not key.startswith("_")]
    for key in data.draw(st.lists(st.sampled_from(methods), max_size=4), "methods"):
        method = getattr(instance, key)
        if callable(method):
            attack(method, names_of(method), data)
    assert repr(instance)


UNDER_A_LIMIT = """
import resource
import rlox_native
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
for call in [
    lambda: rlox_native.pack_sequences([3, 2], 10**9),
    lambda: rlox_native.ReplayBuffer(10**8, 4, 1),
    lambda: rlox_native.RunningMeanStd((10**8, 3)),
]:
    try:
        call()
    except MemoryError as error:
        print(error)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is Linux's")
def test_a_limit_of_the_address_space_is_heeded():
    """More memory is a MemoryError with the required size, never an abort."""
    result = subprocess.run(
        [sys.executable, "-c", UNDER_A_LIMIT], check=True, capture_output=True, text=True
    )
    lines = result.stdout.splitlines()
    assert [line.split(" = ")[0] for line in lines] == [
        f"not enough memory for {name}" for name in ("max_len", "capacity", "shape")
    ]
    assert all("it would take" in line and "are available" in line for line in lines)


class Liar:
    """A sequence of one width with a length beyond any memory."""

    def __len__(self):
        return 2**62

    def __getitem__(self, index):
        return [4][index]


LEARNERS = {
    "ActorCriticLearner": lambda hidden: rlox_native.ActorCriticLearner(3, hidden, n_actions=2),
    "QLearner": lambda hidden: rlox_native.QLearner(3, hidden, 2),
    "ContinuousLearner": lambda hidden: rlox_native.ContinuousLearner(3, 1, hidden, 2),
    "ImplicitLearner": lambda hidden: rlox_native.ImplicitLearner(
        3, 1, hidden, 2, log_std_bounds=(-5, 2)
    ),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_hidden_widths_are_counted_not_believed(name):
    """A wrong length, an endless sequence, and networks too large for any machine."""
    make = LEARNERS[name]
    Sequence.register(Liar)
    assert repr(make(Liar())) == repr(make([4]))
    with pytest.raises(ValueError, match="hidden must have at most 256 layers, got more"):
        make(itertools.repeat(4))
    with pytest.raises(MemoryError, match=r"hidden = \[4294967296\]: it would take .* GiB"):
        make([2**32])
    with pytest.raises(ValueError, match="every width of hidden must be at least"):
        make([4, -1])


def test_a_panic_is_an_ordinary_exception(capfd):
    """Everywhere ``except Exception`` catches it, with the panic's text."""
    with pytest.raises(RuntimeError, match=r"^deliberate$") as caught:
        _native._panic("deliberate")
    assert isinstance(caught.value, Exception)
    assert rlox_native.VecEnv(2, seed=0).reset_all().shape == (2, 4)
    assert "panicked at" in capfd.readouterr().err


@pytest.mark.parametrize(
    "call",
    [
        lambda: INSTANCES["QLearner"]().step(
            {}, None, {}, learning_rate=1e-3, double=True, huber=True
        ),
        lambda: INSTANCES["ContinuousLearner"]().penalize(None, None, {}, None, None, None),
    ],
)
def test_a_dict_that_lacks_a_key_is_refused(call):
    """The error names the argument."""
    with pytest.raises(ValueError, match=r"^(learnt|batch) lacks the key '(parameters|obs)'$"):
        call()


def test_every_class_is_attacked():
    """So that new classes are attacked too."""
    classes = {n for n in rlox_native.__all__ if inspect.isclass(getattr(rlox_native, n))}
    assert classes == {*INSTANCES, *BUFFERS}


OBS = hnp.arrays(np.float32, (3,), elements=st.floats(-9, 9, width=32)) | ANYTHING


def hindsight(capacity, obs_dim, act_dim, **options):
    """A hindsight buffer with the first two numbers of an observation as goals."""
    return HerReplayBuffer(capacity, obs_dim, act_dim, 1, distance_threshold=1.0, **options)


KINDS = [ReplayBuffer, PrioritizedReplayBuffer, hindsight]


def assert_whole(buffer):
    """The buffer still works, and its content is finite."""
    assert len(buffer) == 0 or np.isfinite(buffer.sample(5)["obs"]).all()


def attempt(call, *args, **kwargs):
    """Return whether a call was accepted; unexpected errors are raised."""
    try:
        call(*args, **kwargs)
    except EXPECTED[:4]:
        return False
    return True


def attack_buffer(buffer, data):
    """Call all methods of a buffer with rows of three and actions of one number."""
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


@given(st.data())
def test_any_object_is_stored_or_refused(data):
    """For buffers in memory, by push, push_batch, sample and out."""
    cls = data.draw(st.sampled_from(KINDS))
    buffer = cls(4, 3, 1, seed=0)
    attack_buffer(buffer, data)
    if cls is hindsight:
        buffer.truncate_episodes()
    else:
        attempt(buffer.sample_sequences, data.draw(ANYTHING), data.draw(ANYTHING))
    if cls is PrioritizedReplayBuffer:
        attempt(buffer.update_priorities, data.draw(ANYTHING), data.draw(ANYTHING))
        attempt(buffer.set_beta, data.draw(ANYTHING))
    assert_whole(buffer)


@given(st.data())
def test_any_object_is_stored_or_refused_over_a_file(data):
    """Also if most transitions are on disk."""
    with (
        TemporaryDirectory() as folder,
        MmapReplayBuffer(2, 4, 3, 1, Path(folder) / "cold", seed=0) as buffer,
    ):
        attack_buffer(buffer, data)


@given(st.data())
def test_any_objects_are_a_dataset_or_refused(data):
    """For every part and option."""
    n = data.draw(st.integers(0, 4))
    good = [np.zeros((n, 3)), np.zeros((n, 3)), np.zeros(n), np.zeros(n), np.ones(n), np.zeros(n)]
    parts = [part if data.draw(st.booleans()) else data.draw(ANYTHING) for part in good]
    names = ["obs_dim", "act_dim", "obs_dtype", "act_dtype", "seed"]
    options = {name: data.draw(ANYTHING) for name in names if data.draw(st.integers(0, 3)) == 0}
    try:
        dataset = OfflineDatasetBuffer(*parts, data.draw(st.booleans()), **options)
    except EXPECTED[:4]:
        return
    assert len(dataset.sample(3)["rewards"]) == 3
    attempt(dataset.sample_trajectories, data.draw(ANYTHING), data.draw(ANYTHING))
    assert dataset.stats()["n_transitions"] == len(dataset)


@given(st.data())
def test_any_state_is_restored_or_refused_whole(data):
    """A state with any parts replaced or left out."""
    buffer = data.draw(st.sampled_from(KINDS))(4, 3, 1, seed=0)
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


@given(st.data())
def test_any_rows_of_streams_are_stored_or_refused_whole(data):
    """Sizes, rows, draws, write-back and states; refused calls change nothing."""
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


@given(sizes=st.tuples(ANYTHING, ANYTHING, ANYTHING), options=st.data())
def test_any_size_makes_a_buffer_or_is_refused(sizes, options):
    """Including sizes beyond any machine's memory."""
    cls = options.draw(st.sampled_from([ReplayBuffer, PrioritizedReplayBuffer]))
    names = ["obs_dtype", "act_dtype", "n_envs", "n_step", "gamma", "seed"]
    given_ = {name: options.draw(ANYTHING) for name in names if options.draw(st.booleans())}
    attempt(cls, *sizes, **given_)
    attempt(cls.memory_bytes, *sizes)


@given(st.data())
def test_any_function_of_goals_is_believed_or_refused(data):
    """Any object as function, any result, and every option of goals."""
    names = [
        "compute_terminated", "distance_threshold", "n_sampled_goal", "goal_selection_strategy",
        "achieved_goal", "desired_goal", "n_envs", "capacity",
    ]  # fmt: skip
    options = {name: data.draw(ANYTHING) for name in names if data.draw(st.integers(0, 7)) == 0}
    reward = data.draw(ANYTHING) if data.draw(st.integers(0, 7)) == 0 else lambda *_: result
    result = data.draw(ANYTHING)
    try:
        buffer = HerReplayBuffer(options.pop("capacity", 4), 3, 1, 1, reward, **options)
    except EXPECTED[:4]:
        return
    attempt(buffer.push, np.zeros(3), 0, 0, False, False, np.ones(3))
    attempt(buffer.sample, data.draw(st.integers(1, 9)))
    assert len(buffer.state()["rewards"]) == len(buffer)


def test_a_function_of_goals_may_use_the_buffer_and_fail():
    """No lock is held while it runs, and its error is passed on."""

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


@pytest.mark.parametrize("cls", KINDS)
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
        while not stop.is_set() and turns < 60:
            turns += 1
            if worker == 0:
                push(turns)
            elif worker == 1:
                buffer.set_state(state if turns % 2 else buffer.state())
            else:
                pieces = worker == 3 and sequences
                batch = buffer.sample_sequences(4, 4) if pieces else buffer.sample(16)
                there = batch.get("mask", np.ones(batch["rewards"].shape, bool))
                # the last number, which is not part of a goal
                obs, next_obs = batch["obs"][..., 2:], batch["next_obs"][..., 2:]
                np.testing.assert_array_equal(obs, batch["actions"])
                np.testing.assert_array_equal(next_obs[there], obs[there] + 1)
        return worker

    try:
        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(work, range(4))) == [0, 1, 2, 3]
    finally:
        stop.set()
