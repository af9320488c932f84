"""One hostile argument among honest ones: Rust kernels refuse it, or compute what NumPy's do."""

import math

import numpy as np
import pytest
import rlox_native
from hypothesis import given
from hypothesis import strategies as st
from rlox.kernels import reference

EXPECTED = (ValueError, TypeError, MemoryError, OverflowError)
T, N = 4, 2
COLUMN = {"rewards": (T,), "values": (T,), "dones": (T,), "log_rhos": (T,)}
CUTS = {"truncated": (T,), "final_values": (T,)}
BATCHED = {"rewards": (N * T,), "values": (N * T,), "dones": (N * T,), "last_values": (N,)}
GRID = dict.fromkeys(("rewards", "values", "terminated", "truncated", "final_values"), (T, N))
DISCOUNTED = {"gamma": 0.9, "lam": 0.8}


def columns(*names):
    """Shapes of the arrays of one env."""
    return {name: COLUMN[name] for name in names}


HONEST = {
    "compute_gae": columns("rewards", "values", "dones") | {"last_value": 0.5} | DISCOUNTED,
    "compute_gae_batched": BATCHED | {"n_steps": T} | DISCOUNTED,
    "compute_gae_batched_f32": BATCHED | {"n_steps": T} | DISCOUNTED,
    "compute_gae_time_major": GRID | {"last_values": (N,)} | DISCOUNTED,
    "compute_batch_group_advantages": {
        "rewards": (N * T,), "group_size": T, "ddof": 1, "eps": 1e-4, "scale": "batch",
    },
    "compute_batch_token_kl": {"log_p": (N * T,), "log_q": (N * T,), "seq_len": T},
    "compute_batch_token_kl_schulman": {"log_p": (N * T,), "log_q": (N * T,), "seq_len": T},
    "compute_discounted_returns": columns("rewards", "dones")
    | {"last_value": 0.5, "gamma": 0.9} | CUTS,
    "compute_group_advantages": {"rewards": (T,), "ddof": 1, "eps": 1e-4, "scale": "group"},
    "compute_lambda_returns": columns("rewards", "values", "dones")
    | {"last_value": 0.5} | DISCOUNTED | CUTS,
    "compute_n_step_returns": columns("rewards", "values", "dones")
    | {"last_value": 0.5, "gamma": 0.9, "n": 2} | CUTS,
    "compute_token_kl": {"log_p": (T,), "log_q": (T,)},
    "compute_token_kl_schulman": {"log_p": (T,), "log_q": (T,)},
    "compute_vtrace": columns("log_rhos", "rewards", "values", "dones")
    | {"bootstrap_value": 0.5, "gamma": 0.9, "rho_bar": 1.0, "c_bar": 1.0} | CUTS,
    "normalize_advantages": {"advantages": (T,), "ddof": 1, "eps": 1e-8},
    "pack_sequences": {"sequences": [1, 3, 2], "max_len": T},
}  # fmt: skip
"""Honest arguments; of an array the shape."""

SETTINGS = {"get_num_threads", "set_num_threads"}
"""Functions that compute nothing: their errors are in the tests of threads."""

FLAGS = {"dones", "terminated", "truncated"}
EDGES = [0, 1, -1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 2**80, -(2**63)]
SHAPES = [(), (0,), (1,), (T,), (T + 1,), (N * T,), (T, N), (N, T), (T, 0), (T, N, 1)]
DTYPES = ["?", "i1", "u8", "<f2", ">f4", "<f8", "g", "c8", "U3", "O", "M8[s]"]
ANYTHING = st.one_of(
    st.sampled_from([
        *EDGES, 0.5, -0.5, 1.5, 1e308, 5e-324, math.nan, math.inf, -math.inf, None, True, False, "",
        "batch", b"x", (), [], [[1], [2, 3]], {}, object(), ..., 1j, np.float64(0.5), np.int8(-1),
        np.array(None), [None] * T, ["1"] * T, [0.5] * T, [math.nan] * T, [10**400] * T,
        range(T), [2**62] * T, [-1] * T,
    ]),
    st.builds(np.zeros, st.sampled_from(SHAPES), st.sampled_from(DTYPES)),
    st.builds(np.full, st.sampled_from(SHAPES), st.floats(-1e6, 1e6, width=32)),
)  # fmt: skip


def outcome(module, name, arguments):
    """Return what a call gives, as a list of arrays, or what kind of error it raises."""
    try:
        result = getattr(module, name)(**arguments)
    except EXPECTED as error:
        return type(error)
    return [np.asarray(part) for part in (result if np.iterable(result) else [result])]


@pytest.mark.parametrize("name", sorted(HONEST))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of overflow and NaN
@given(seed=st.integers(0, 2**32), dtype=st.sampled_from(["<f4", "<f8"]), data=st.data())
def test_one_hostile_argument(name, seed, dtype, data):
    """An ordinary error, or the numbers of the reference."""
    rng = np.random.default_rng(seed)
    arguments = {
        key: (rng.random(value) < 0.2 if key in FLAGS else rng.standard_normal(value).astype(dtype))
        if isinstance(value, tuple) else value
        for key, value in HONEST[name].items()
    }  # fmt: skip
    arguments[data.draw(st.sampled_from(sorted(arguments)), "which")] = data.draw(ANYTHING, "value")
    got, expected = (outcome(module, name, arguments) for module in (rlox_native, reference))
    if isinstance(got, type):
        return  # the reference may be more lenient with what is no number
    assert not isinstance(expected, type), f"only the reference refuses it, with {expected}"
    single = dtype == "<f4" or name.endswith("f32")
    tolerance = 2e-4 if single else 1e-9
    with np.errstate(all="ignore"):
        for a, b in zip(got, expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_every_function_is_there():
    """A new kernel gets its honest arguments here."""
    functions = {name for name in reference.__all__ if name.islower()}
    assert set(HONEST) == functions - SETTINGS
