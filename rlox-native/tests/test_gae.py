"""Generalised advantage estimation against a slow loop written from the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from rlox_native import (
    compute_gae,
    compute_gae_batched,
    compute_gae_batched_f32,
    compute_gae_time_major,
)

FACTORS = st.floats(0, 1)
SIZES = st.tuples(st.integers(1, 40), st.integers(1, 10))


def oracle(rewards, values, terminated, truncated, final_values, last_values, gamma, lam):
    """Sum (γλ)^k δ_{t+k} up to the episode's end, for each t and env on its own (equation 16)."""
    following = np.where(truncated, final_values, np.vstack([values[1:], last_values]))
    deltas = rewards + gamma * np.where(terminated, 0.0, following) - values
    goes_on = gamma * lam * ~(terminated | truncated)
    advantages = np.zeros_like(rewards)
    for t in range(len(rewards)):
        weights = np.ones_like(last_values)
        for k in range(t, len(rewards)):
            advantages[t] += weights * deltas[k]
            weights = weights * goes_on[k]
            if not weights.any():
                break
    return advantages


SEEDS, ENDS = st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.9])


def make_rollout(shape, seed, ends):
    """A time-major rollout: rewards, values, terminated, truncated, final_values, last_values."""
    rng = np.random.default_rng(seed)
    terminated, truncated = rng.random((2, *shape)) < ends
    rewards, values, final_values = 5 * rng.standard_normal((3, *shape))
    return rewards, values, terminated, truncated, final_values, rng.standard_normal(shape[1])


def rollouts():
    """Rollouts of few steps."""
    return st.builds(make_rollout, SIZES, SEEDS, ENDS)


def check_time_major(rollout, gamma, lam):
    """Advantages are the discounted sums of errors, returns add the values."""
    advantages, returns = compute_gae_time_major(*rollout, gamma, lam)
    np.testing.assert_allclose(advantages, oracle(*rollout, gamma, lam), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(returns, advantages + rollout[1], strict=True)


def check_batched(rollout, gamma, lam):
    """The env-major layout gives the time-major results, env by env, in both types."""
    rewards, values, dones, _, _, last_values = rollout
    none = np.zeros_like(dones)
    expected = compute_gae_time_major(rewards, values, dones, none, values, last_values, gamma, lam)
    flat = [np.ravel(array.T) for array in (rewards, values, dones)]
    n_steps = len(rewards)
    got = compute_gae_batched(*flat, last_values, n_steps, gamma, lam)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b.T.ravel(), strict=True)
    single = compute_gae_batched_f32(*flat, last_values, n_steps, gamma, lam)
    for a, b in zip(single, got, strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)
    for env, last_value in enumerate(last_values):
        alone = compute_gae(rewards[:, env], values[:, env], dones[:, env], last_value, gamma, lam)
        for a, b in zip(alone, expected, strict=True):
            np.testing.assert_array_equal(a, b[:, env], strict=True)


@given(rollouts(), FACTORS, FACTORS)
def test_both_layouts_equal_the_definition(rollout, gamma, lam):
    """And agree with each other, bit for bit."""
    check_time_major(rollout, gamma, lam)
    check_batched(rollout, gamma, lam)


@given(st.integers(1, 19), SEEDS, ENDS)
def test_long_rollouts_equal_the_definition(n_envs, seed, ends):
    """They exceed the kernels' tiles of steps and groups of envs."""
    rollout = make_rollout((300, n_envs), seed, ends)
    check_time_major(rollout, 0.99, 0.95)
    check_batched(rollout, 0.99, 0.95)


def test_final_values_are_read_only_at_truncations():
    """Other entries of final_values, even NaN, have no effect."""
    shape = (4, 3)
    rng = np.random.default_rng(0)
    rewards, values = rng.standard_normal((2, *shape))
    terminated, truncated = rng.random((2, *shape)) < 0.4
    final_values = np.where(truncated & ~terminated, 1.0, np.nan)
    advantages, _ = compute_gae_time_major(
        rewards, values, terminated, truncated, final_values, np.zeros(3), 0.9, 0.9
    )
    assert np.isfinite(advantages).all()


@given(
    dtype=st.sampled_from(["f2", "f4", "f8", ">f8", "i1", "u1", "i8", "u8", "?"]),
    dones=hnp.arrays(st.sampled_from(["?", "f4", "i8", "u1"]), 6, elements=st.integers(0, 1)),
    layout=st.sampled_from(["plain", "strided", "reversed", "list", "unaligned", "read-only"]),
)
def test_every_real_type_and_layout_is_accepted(dtype, dones, layout):
    """Arrays of any real type and layout give the results of float64 arrays."""
    plain = np.array([1, 0, 1, 1, 0, 1]).astype(dtype)

    def laid_out(array):
        match layout:
            case "strided":
                return np.repeat(array, 2)[::2]
            case "reversed":
                return array[::-1].copy()[::-1]
            case "list":
                return array.tolist()
            case "unaligned":
                raw = np.zeros(array.nbytes + 1, np.uint8)
                raw[1:] = array.view(np.uint8)
                return raw[1:].view(array.dtype)
            case "read-only":
                array.flags.writeable = False
        return array

    expected = compute_gae(
        plain.astype(np.float64), plain.astype(np.float64), dones.astype(np.bool_), 0.5, 0.9, 0.8
    )
    got = compute_gae(laid_out(plain), laid_out(plain), laid_out(dones), 0.5, 0.9, 0.8)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


def test_a_mask_of_any_true_byte_is_true():
    """In a bool array made from other bytes, nonzero bytes are true."""
    odd = np.array([0, 2, 255, 0], np.uint8).view(np.bool_)
    expected, _ = compute_gae([1.0] * 4, [1.0] * 4, [0, 1, 1, 0], 1.0, 0.9, 0.9)
    got, _ = compute_gae([1.0] * 4, [1.0] * 4, odd, 1.0, 0.9, 0.9)
    np.testing.assert_array_equal(got, expected)


def test_empty_inputs_give_empty_results():
    """Neither zero steps nor zero envs are an error."""
    assert [a.shape for a in compute_gae([], [], [], 1.0, 0.9, 0.9)] == [(0,)] * 2
    assert [a.shape for a in compute_gae_batched([], [], [], [], 3, 0.9, 0.9)] == [(0,)] * 2
    for shape in [(0, 3), (3, 0), (0, 0)]:
        x = np.zeros(shape)
        out = compute_gae_time_major(x, x, x, x, x, np.zeros(shape[1]), 0.9, 0.9)
        assert [a.shape for a in out] == [shape] * 2


def single(**changes):
    """Call compute_gae with valid arguments except for `changes`."""
    good = {"rewards": [1.0] * 4, "values": [1.0] * 4, "dones": [False] * 4, "last_value": 1.0}
    return compute_gae(**{**good, "gamma": 0.9, "lam": 0.9, **changes})


def batched(**changes):
    """Call compute_gae_batched with valid arguments except for `changes`."""
    good = {"rewards": [1.0] * 4, "values": [1.0] * 4, "dones": [False] * 4}
    good |= {"last_values": [1.0] * 2, "n_steps": 2, "gamma": 0.9, "lam": 0.9}
    return compute_gae_batched(**{**good, **changes})


def time_major(**changes):
    """Call compute_gae_time_major with valid arguments except for `changes`."""
    names = ("rewards", "values", "terminated", "truncated", "final_values")
    good = {name: np.ones((2, 3)) for name in names}
    good |= {"last_values": np.ones(3), "gamma": 0.9, "lam": 0.9}
    return compute_gae_time_major(**{**good, **changes})


@pytest.mark.parametrize(
    ("call", "changes", "error", "message"),
    [
        (single, {"values": [1.0] * 3}, ValueError,
         "^values must have length 4 like rewards, got 3$"),
        (single, {"rewards": [[1.0]]}, ValueError, "^rewards must have 1 dimension, got 2$"),
        (single, {"rewards": [[1.0], [1.0, 2.0]]}, ValueError,
         "^rewards must be a rectangular array"),
        (single, {"last_value": "a"}, TypeError, "last_value"),
        (single, {"gamma": 1.2}, ValueError, r"^gamma must lie in \[0, 1\], got 1.2$"),
        (single, {"gamma": np.nan}, ValueError, r"^gamma must lie in \[0, 1\], got NaN$"),
        (batched, {"n_steps": 3}, ValueError,
         r"^rewards must have length 6 like .*n_steps, got 4$"),
        (batched, {"n_steps": 0}, ValueError, "^n_steps must be at least 1, got 0$"),
        (batched, {"n_steps": 2**63}, MemoryError, "n_steps"),
        (time_major, {"values": np.ones((3, 2))}, ValueError,
         r"^values must have shape \(2, 3\) like rewards, got \(3, 2\)$"),
        (time_major, {"last_values": np.ones(2)}, ValueError,
         "^last_values must have length 3 like a row of rewards, got 2$"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_by_name(call, changes, error, message):
    """The message has the argument's name, requirement and value."""
    with pytest.raises(error, match=message):
        call(**changes)


def test_results_go_into_the_arrays_that_are_given():
    """``out`` itself is returned, with the same numbers as new arrays."""
    rng = np.random.default_rng(0)
    rewards, values = rng.standard_normal((2, 6, 2)).astype(np.float32)
    ends, last = rng.random((6, 2)) < 0.3, np.zeros(2, np.float32)
    time_major = (rewards, values, ends, ends, values, last, 0.9, 0.8)
    out = np.empty_like(rewards), np.empty_like(rewards)
    got = compute_gae_time_major(*time_major, out=out)
    assert got[0] is out[0]
    assert got[1] is out[1]
    np.testing.assert_array_equal(out, compute_gae_time_major(*time_major))
    flat = np.empty(12, np.float32), np.empty(12, np.float32)
    env_major = (rewards.ravel(), values.ravel(), ends.ravel(), last, 6, 0.9, 0.8)
    compute_gae_batched_f32(*env_major, out=flat)
    np.testing.assert_array_equal(flat, compute_gae_batched_f32(*env_major))


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        ((np.empty(3), np.empty(3, np.float32)), TypeError, r"out\[1\] must have dtype float64"),
        ((np.empty(2), np.empty(3)), ValueError,
         r"out\[0\] must have length 3 like rewards, got 2"),
        ((np.empty(6)[::2], np.empty(3)), ValueError, r"out\[0\] must be C-contiguous"),
    ],
)  # fmt: skip
def test_arrays_that_cannot_be_written_to_are_refused(out, error, message):
    """Type, shape and layout must be those of the results, without shared memory."""
    with pytest.raises(error, match=message):
        compute_gae([1.0] * 3, [0.0] * 3, [0] * 3, 0.0, 0.9, 0.9, out=out)


def test_an_output_is_no_other_array():
    """Outputs must not overlap with inputs or with each other."""
    rewards, result = np.ones(3), np.empty(3)
    with pytest.raises(ValueError, match="must not share memory"):
        compute_gae(rewards, np.zeros(3), np.zeros(3), 0, 0.9, 0.9, out=(result, result))
    with pytest.raises(ValueError, match="must not share memory"):
        compute_gae(rewards, np.zeros(3), np.zeros(3), 0, 0.9, 0.9, out=(rewards, np.empty(3)))
