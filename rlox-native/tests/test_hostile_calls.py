"""Hostile arguments: every function and method takes them or refuses them as Python does.

The attacks on buffers are in ``test_replay_hostile``. ``RLOX_FUZZ_EXAMPLES`` says how many calls
each is given.
"""

import contextlib
import inspect
import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rlox_native
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from rlox_native import _native

# NumPy's word on numbers that single precision does not have
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in cast:RuntimeWarning")

EXPECTED = (ValueError, TypeError, MemoryError, RuntimeError, OverflowError)
"""And no other: no panic, no SystemError, no BufferError."""

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
EXAMPLES = int(os.environ.get("RLOX_FUZZ_EXAMPLES", "100"))
thorough = settings(deadline=None, max_examples=EXAMPLES)

DTYPES = st.sampled_from(
    ["?", "i1", "u1", "<i4", ">i8", "u8", "f2", "<f4", ">f4", "<f8", "g", "c8", "U3", "O", "M8[s]"]
)
LAYOUTS = st.sampled_from(["as is", "transposed", "reversed", "strided", "repeated", "read-only"])
SIZES = st.integers(-2, 40) | st.sampled_from([2**31, 2**32, 2**62, 2**63, 2**64, 2**80])


@st.composite
def arrays(draw):
    """Arrays of any type and layout, most of them of shapes that fit each other."""
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
    """The names of a function's parameters, without self."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name != "self"]


def attack(function, names, data):
    """Call a function with anything for some of its parameters."""
    arguments = {name: data.draw(ANYTHING, name) for name in names if data.draw(st.integers(0, 4))}
    with contextlib.suppress(*EXPECTED):
        function(**arguments)


@pytest.mark.parametrize("name", FUNCTIONS)
@thorough
@given(data=st.data())
def test_any_object_is_computed_with_or_refused(name, data):
    """By every function."""
    function = getattr(rlox_native, name)
    attack(function, names_of(function), data)


@pytest.mark.parametrize("name", sorted(INSTANCES))
@thorough
@given(data=st.data())
def test_any_object_makes_an_instance_or_is_refused(name, data):
    """By every class but the buffers."""
    cls = getattr(rlox_native, name)
    if name != "PackedSequences":  # not to be made by hand
        attack(cls, names_of(cls), data)


@pytest.mark.parametrize("name", sorted(INSTANCES))
@thorough
@given(data=st.data())
def test_any_call_of_a_method_is_carried_out_or_refused(name, data):
    """One after the other on one instance, which stays usable."""
    instance = INSTANCES[name]()
    methods = [key for key in dir(type(instance)) if not key.startswith("_")]
    for key in data.draw(st.lists(st.sampled_from(methods), max_size=4), "methods"):
        method = getattr(instance, key)
        if callable(method):
            attack(method, names_of(method), data)
    assert repr(instance)


@pytest.mark.parametrize(
    "call",
    [
        lambda: rlox_native.RunningMeanStd((2**40,)),
        lambda: rlox_native.RunningMeanStd(2**50),
        lambda: rlox_native.pack_sequences([2**30] * 99, 2**30),
        lambda: rlox_native.pack_sequences([1], 2**62),
    ],
)
def test_what_has_no_room_is_a_memory_error(call):
    """And not the end of the process."""
    with pytest.raises(MemoryError, match=r"not enough memory for (shape|max_len) = "):
        call()


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
    """What is beyond it is a MemoryError with what it would take, and never an abort."""
    result = subprocess.run(
        [sys.executable, "-c", UNDER_A_LIMIT], check=True, capture_output=True, text=True
    )
    lines = result.stdout.splitlines()
    assert [line.split(" = ")[0] for line in lines] == [
        f"not enough memory for {name}" for name in ("max_len", "capacity", "shape")
    ]
    assert all("it would take" in line and "are available" in line for line in lines)


class Liar:
    """A sequence of one width that claims to be longer than any memory."""

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
    """A length that lies, one without end, and networks that no machine holds."""
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
    """Wherever it happens, ``except Exception`` gets it; its text is that of the panic."""
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
    """By the name of the argument."""
    with pytest.raises(ValueError, match=r"^(learnt|batch) lacks the key '(parameters|obs)'$"):
        call()


def test_every_class_is_attacked():
    """Nobody adds one without."""
    classes = {n for n in rlox_native.__all__ if inspect.isclass(getattr(rlox_native, n))}
    assert classes == {*INSTANCES, *BUFFERS}


def test_threads_share_instances():
    """Envs, moments and a learner used by four threads at once."""
    envs, moments = rlox_native.VecEnv(3, seed=0), rlox_native.RunningMeanStd((2,))
    envs.reset_all()

    def work(worker):
        for turn in range(200):
            if worker % 2:
                step = envs.step_all(np.ones(3, np.int64))
                assert np.isfinite(step["obs"]).all()
            else:
                moments.update(np.full((4, 2), turn, np.float32))
        return worker

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(work, range(4))) == [0, 1, 2, 3]
    assert moments.count == 2 * 200 * 4
