"""The Rust kernels do what the NumPy reference, their specification, does."""

import inspect

import numpy as np
import pytest
import rlox_native
from hypothesis import given
from hypothesis import strategies as st
from rlox.kernels import reference

SEEDS = st.integers(0, 2**32)
DTYPES = st.sampled_from([np.float32, np.float64])


def compare(name, dtype, *arguments, **options):
    """Call both implementations and compare what they return, types included."""
    results = [getattr(module, name)(*arguments, **options) for module in (rlox_native, reference)]
    got, expected = (list(r) if isinstance(r, tuple) else [r] for r in results)
    tolerance = 2e-4 if dtype == np.float32 else 1e-9
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
        assert np.asarray(a).dtype == np.asarray(b).dtype


@given(SEEDS, st.integers(1, 20), st.sampled_from([(), (1,), (3,)]), DTYPES, st.booleans())
def test_rollout_kernels(seed, n_steps, envs, dtype, cut):
    """Returns, V-trace and GAE of one env and of several, with and without cuts."""
    rng = np.random.default_rng(seed)
    shape = (n_steps, *envs)
    rewards, values, final_values, log_rhos = rng.standard_normal((4, *shape)).astype(dtype)
    last, dones = rng.standard_normal(envs), rng.random(shape) < 0.2
    truncated = rng.random(shape) < 0.2
    cuts = {"truncated": truncated, "final_values": final_values} if cut else {}
    steps = (rewards, values, dones, last)
    compare("compute_discounted_returns", dtype, rewards, dones, last, 0.9, **cuts)
    compare("compute_n_step_returns", dtype, *steps, 0.9, int(rng.integers(1, 9)), **cuts)
    compare("compute_lambda_returns", dtype, *steps, 0.9, 0.8, **cuts)
    compare("compute_vtrace", dtype, log_rhos, *steps, 0.9, 1.2, 0.9, **cuts)
    if shape[1:]:
        compare(
            "compute_gae_time_major", dtype, rewards, values, dones, truncated, final_values, last,
            0.9, 0.8,
        )  # fmt: skip


@given(SEEDS, st.integers(0, 5), st.integers(1, 6), DTYPES)
def test_language_kernels(seed, n, size, dtype):
    """Advantages of groups, divergences of sequences."""
    rng = np.random.default_rng(seed)
    rewards = rng.integers(0, 3, n * size).astype(dtype)
    for scale in ("group", "batch", "none"):
        options = {"scale": scale, "ddof": min(1, size - 1), "eps": 1e-4}
        compare("compute_batch_group_advantages", dtype, rewards, size, **options)
    compare("compute_group_advantages", dtype, rewards)
    compare("normalize_advantages", dtype, rewards)
    p, q = (-3 * rng.random((2, n * size))).astype(dtype)
    for name in ("compute_token_kl", "compute_token_kl_schulman"):
        compare(name, dtype, p, q)
        compare(name.replace("compute", "compute_batch"), dtype, p, q, size)


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(9, 15), st.booleans())
def test_packing(lengths, max_len, as_tokens):
    """The same rows, to the last index."""
    sequences = [np.arange(n) + 7 for n in lengths] if as_tokens else lengths
    got, expected = (m.pack_sequences(sequences, max_len) for m in (rlox_native, reference))
    for field in ("packed", "masks", "positions", "indices", "rows", "cu_seqlens"):
        np.testing.assert_array_equal(getattr(got, field), getattr(expected, field), strict=True)


@given(SEEDS, st.lists(st.integers(0, 4), max_size=5))
def test_running_mean_std(seed, sizes):
    """The same moments, and states that either can go on from."""
    rng = np.random.default_rng(seed)
    native, numpy = rlox_native.RunningMeanStd((2,)), reference.RunningMeanStd((2,))
    for n in sizes:
        batch = rng.standard_normal((n, 2))
        native.update(batch)
        numpy.update(batch)
        numpy.set_state(native.state())
        native.set_state(numpy.state())
    assert native.count == numpy.count
    np.testing.assert_array_equal(native.mean, numpy.mean, strict=True)
    np.testing.assert_array_equal(native.var, numpy.var, strict=True)


FUNCTIONS = [name for name in reference.__all__ if name[0].islower()]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_agree(name):
    """Arguments have the same names, kinds and defaults, so that either stands for the other."""

    def parameters(module):
        signature = inspect.signature(getattr(module, name))
        return [(p.name, p.kind, p.default) for p in signature.parameters.values()]

    assert parameters(rlox_native) == parameters(reference)
