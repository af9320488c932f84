"""Tests of the reference kernels against hand computation and published numbers."""

import math

import numpy as np
import pytest
from rlox.kernels import reference
from rlox.kernels.reference import (
    compute_gae,
    compute_gae_batched,
    compute_gae_batched_f32,
    compute_gae_time_major,
)
from rlox.kernels.reference.groups import DPOPair


def column(values, dtype=np.float64):
    """Return (T,) values as those of one env, (T, 1)."""
    return np.array(values, dtype)[:, None]


def test_golden_values_without_an_end():
    """Three steps of one episode that goes on after them.

    γ = 1/2, λ = 1/2, γλ = 1/4; r = 1, 2, 4; V = 2, 4, 8; last value 16.
        δ_2 = 4 + 8 - 8 = 4              A_2 = 4
        δ_1 = 2 + 4 - 4 = 2              A_1 = 2 + 4/4 = 3
        δ_0 = 1 + 2 - 2 = 1              A_0 = 1 + 3/4 = 1.75
    """
    advantages, returns = compute_gae([1, 2, 4], [2, 4, 8], [0, 0, 0], 16, 0.5, 0.5)
    assert advantages.tolist() == [1.75, 3.0, 4.0]
    assert returns.tolist() == [3.75, 7.0, 12.0]


def test_golden_values_with_a_termination():
    """The second of four steps ends the task.

    γ = 1/2, λ = 1/2; r = 1, 2, 4, 8; V = 2, 4, 8, 16; last value 32.
        δ_3 = 8 + 16 - 16 = 8            A_3 = 8
        δ_2 = 4 + 8 - 8 = 4              A_2 = 4 + 8/4 = 6
        δ_1 = 2 + 0 - 4 = -2             A_1 = -2, no trace from the next episode
        δ_0 = 1 + 2 - 2 = 1              A_0 = 1 - 2/4 = 0.5
    """
    advantages, returns = compute_gae([1, 2, 4, 8], [2, 4, 8, 16], [0, 1, 0, 0], 32, 0.5, 0.5)
    assert advantages.tolist() == [0.5, -2.0, 6.0, 8.0]
    assert returns.tolist() == [2.5, 2.0, 14.0, 24.0]


def test_golden_values_with_a_truncation():
    """The second of three steps is cut where the final observation is worth 6.

    γ = 1/2, λ = 1/2; r = 1, 2, 4; V = 2, 4, 8; last value 16.
        δ_2 = 4 + 8 - 8 = 4              A_2 = 4
        δ_1 = 2 + 6/2 - 4 = 1            A_1 = 1, no trace from the next episode
        δ_0 = 1 + 2 - 2 = 1              A_0 = 1 + 1/4 = 1.25
    """
    advantages, returns = compute_gae_time_major(
        column([1, 2, 4]),
        column([2, 4, 8]),
        column([0, 0, 0], bool),
        column([0, 1, 0], bool),
        column([99, 6, 99]),
        np.array([16.0]),
        0.5,
        0.5,
    )
    assert advantages[:, 0].tolist() == [1.25, 1.0, 4.0]
    assert returns[:, 0].tolist() == [3.25, 5.0, 12.0]


def test_termination_wins_over_truncation():
    """A step that is both has no value beyond, here δ = 2 - 4."""
    advantages, _ = compute_gae_time_major(
        column([2.0]), column([4.0]), column([1], bool), column([1], bool), column([6.0]),
        np.array([16.0]), 0.5, 0.5,
    )  # fmt: skip
    assert advantages.tolist() == [[-2.0]]


def test_result_has_the_rewards_dtype():
    """float32 in, float32 out; everything else is computed in float64."""
    arguments = [[1.0, 2.0], [0.5, 0.5], [0, 1], [0.0], 2, 0.9, 0.9]
    assert [a.dtype for a in compute_gae_batched_f32(*arguments)] == [np.float32] * 2
    assert [a.dtype for a in compute_gae_batched(*arguments)] == [np.float64] * 2
    np.testing.assert_allclose(
        compute_gae_batched_f32(*arguments)[0],
        compute_gae_batched(*arguments)[0],
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"values": [1.0]}, ValueError, "values must have length 2, got 1"),
        ({"dones": [0, 0, 1]}, ValueError, "dones must have length 2, got 3"),
        ({"rewards": [[1.0, 2.0]]}, ValueError,
         "rewards must be one-dimensional, got shape (1, 2)"),
        ({"rewards": ["a", "b"]}, TypeError, "rewards must be real numbers, got dtype <U1"),
        ({"values": [1j, 2]}, TypeError, "values must be real numbers, got dtype complex128"),
        ({"gamma": 1.2}, ValueError, "gamma must lie in [0, 1], got 1.2"),
        ({"lam": -0.1}, ValueError, "lam must lie in [0, 1], got -0.1"),
        ({"gamma": float("nan")}, ValueError, "gamma must lie in [0, 1], got nan"),
    ],
)  # fmt: skip
def test_wrong_trajectory_is_refused(changes, error, message):
    """Every mistake has its message."""
    arguments = {
        "rewards": [1.0, 2.0], "values": [0.5, 0.5], "dones": [0, 1],
        "last_value": 0.0, "gamma": 0.9, "lam": 0.9,
    }  # fmt: skip
    with pytest.raises(error) as caught:
        compute_gae(**{**arguments, **changes})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rewards", np.zeros(3), "rewards must have shape (T, N), got (3,)"),
        ("values", np.zeros((2, 3)), "values must have shape (3, 2), got (2, 3)"),
        ("truncated", np.zeros(3, bool), "truncated must have shape (3, 2), got (3,)"),
        ("last_values", np.zeros(3), "last_values must have shape (2,), got (3,)"),
    ],
)
def test_wrong_shape_is_refused(name, value, message):
    """Nothing is broadcast."""
    arguments = dict.fromkeys(
        ("rewards", "values", "terminated", "truncated", "final_values"), np.zeros((3, 2))
    )
    arguments["last_values"] = np.zeros(2)
    with pytest.raises(ValueError, match="must have shape") as caught:
        compute_gae_time_major(**{**arguments, name: value}, gamma=0.9, lam=0.9)
    assert str(caught.value) == message


STEPS = {"rewards": [1, 2, 4], "values": [2, 4, 8], "last_value": 16, "gamma": 0.5}


def test_golden_returns_without_an_end():
    """γ = 1/2; r = 1, 2, 4; V = 2, 4, 8, then 16.

    discounted:  4 + 8 = 12       2 + 6 = 8        1 + 4 = 5
    two steps:   4 + 8 = 12       2 + 4/2 + 16/4   1 + 2/2 + 8/4
    λ = 1/2:     12               2 + (8 + 12)/4   1 + (4 + 7)/4
    """
    n, lam = {"n": 2}, {"lam": 0.5}
    dones = {"dones": [0, 0, 0]}
    without = {name: value for name, value in STEPS.items() if name != "values"}
    discounted = reference.compute_discounted_returns(**without, **dones)
    assert discounted.tolist() == [5, 8, 12]
    assert reference.compute_n_step_returns(**STEPS, **dones, **n).tolist() == [4, 8, 12]
    assert reference.compute_lambda_returns(**STEPS, **dones, **lam).tolist() == [3.75, 7, 12]


def test_golden_returns_with_ends():
    """The first step terminates, the second is cut where the final observation is worth 6."""
    cuts = {"truncated": [0, 1, 0], "final_values": [math.nan, 6, math.nan]}
    ends = {"dones": [1, 0, 0], **cuts}
    expected = [1, 5, 12]
    assert reference.compute_n_step_returns(**STEPS, **ends, n=9).tolist() == expected
    assert reference.compute_lambda_returns(**STEPS, **ends, lam=0.3).tolist() == expected


def test_golden_vtrace():
    """By hand: γ = 1/2, ratios 2, 1/2, so ρ = c = 1, 1/2; V = 2, 4, then 8.

    δ_1 = ½ (3 + 4 - 4) = 3/2          vs_1 = 4 + 3/2 = 5.5        A_1 = 3/2
    δ_0 = 1 (1 + 2 - 2) = 1            vs_0 = 2 + 1 + ½·1·1.5 = 3.75
    A_0 = 1 (1 + ½·5.5 - 2) = 1.75
    """
    vs, advantages = reference.compute_vtrace(
        np.log([2.0, 0.5]), [1, 3], [2, 4], [0, 0], 8, 0.5, 1.0, 1.0
    )
    np.testing.assert_allclose(vs, [3.75, 5.5], rtol=1e-15)
    np.testing.assert_allclose(advantages, [1.75, 1.5], rtol=1e-15)


def test_group_advantages_of_published_numbers():
    """TRL 1.16's for ddof = 1, ε = 1e-4, and the population's by hand: ±√1.6, ±√0.4."""
    rewards = [0.9, 0.3, 0.7, 0.1]
    trl = [1.095145, -0.547573, 0.547573, -1.095145]
    got = reference.compute_group_advantages(rewards, ddof=1, eps=1e-4)
    np.testing.assert_allclose(got, trl, atol=2e-6)
    batch = reference.compute_batch_group_advantages([*rewards, 0.5, 0.5, 0.5, 0.5], 4)
    population = np.sqrt([1.6, 0.4, 0.4, 1.6]) * [1, -1, 1, -1]
    np.testing.assert_allclose(batch, [*population, 0, 0, 0, 0], rtol=1e-14)


@pytest.mark.parametrize("size", [1e-30, 1e-9, 1e30])
def test_advantages_do_not_depend_on_the_unit_of_rewards(size):
    """However small the rewards, their differences are not lost."""
    rewards = size * np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(
        reference.compute_group_advantages(rewards), [-(1.5**0.5), 0, 1.5**0.5]
    )
    np.testing.assert_allclose(reference.normalize_advantages(rewards, eps=0.0), [-1, 0, 1])


def test_divergences_of_published_numbers():
    """k3 as TRL 1.16 has it; the reverse direction would give 1.612."""
    p, q = [-1, -0.2, -2.5], [-2, -0.6, -0.9]
    assert reference.compute_token_kl_schulman(p, q) == pytest.approx(2.791232, abs=1e-6)
    assert reference.compute_token_kl(np.log([0.5, 0.5]), np.log([0.5, 0.5])) == 0
    rows = reference.compute_batch_token_kl_schulman(p + p, q + q, 3)
    assert rows.tolist() == pytest.approx([2.791232] * 2, abs=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reference.compute_vtrace([0.0], [1.0], [1.0], [0], 0.0, 2.0), "gamma must lie"),
        (lambda: reference.compute_vtrace([0.0], [1.0], [1.0], [0], [0.0], 0.5),
         "bootstrap_value must have shape"),
        (lambda: reference.compute_n_step_returns([1.0], [1.0], [0], 0.0, 0.5, 0), "n must be at"),
        (lambda: reference.compute_discounted_returns([1.0], [0], 0.0, 0.5, truncated=[1]),
         "truncated and final_values come together"),
        (lambda: reference.compute_batch_group_advantages([1.0] * 3, 2), "whole groups of 2"),
        (lambda: reference.compute_group_advantages([1.0, 2.0], scale="grup"),
         "scale must be one of"),
        (lambda: reference.compute_group_advantages([1.0, 2.0], ddof=2), "ddof must lie in"),
        (lambda: reference.compute_batch_token_kl([0.0] * 3, [0.0] * 3, 2), "whole sequences of 2"),
        (lambda: reference.compute_token_kl([0.0], []), "log_q must have length 1"),
        (lambda: reference.pack_sequences([9], 8), r"every length must lie in \[1, 8\], got 9"),
        (lambda: reference.RunningMeanStd(2).update([[math.inf, 0]]), "batch must be finite"),
        (lambda: reference.RunningMeanStd(2).update([0.0, 0.0]),
         r"batch must have shape \(B, 2\), got \(2,\)"),
        (lambda: reference.RunningMeanStd().update([1e308, -1e308]), "must have a finite variance"),
        (lambda: reference.RunningMeanStd().set_state({"count": 0, "mean": 1.0, "squares": 0.0}),
         "where nothing was seen"),
        (lambda: reference.normalize_advantages([1.0, 2.0, 3.0], ddof=3), "ddof must lie in"),
        (lambda: reference.normalize_advantages([1.0, 2.0, 3.0], ddof=-1), "ddof must lie in"),
        (lambda: reference.pack_sequences([np.array([2**63], np.uint64)], 5), "must fit int64"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(call, message):
    """Shapes and ranges are ValueErrors."""
    with pytest.raises(ValueError, match=message):
        call()


def test_gae_writes_into_the_arrays_it_is_given():
    """``out`` is what comes back; another type or shape is refused."""
    arguments = ([1.0, 2.0], [0.5, 0.5], [0, 1], 0.0, 0.9, 0.8)
    out = np.empty(2), np.empty(2)
    advantages, returns = reference.compute_gae(*arguments, out=out)
    assert advantages is out[0]
    assert returns is out[1]
    np.testing.assert_array_equal(out, reference.compute_gae(*arguments))
    with pytest.raises(TypeError, match=r"out\[0\] must have dtype float64, got float32"):
        reference.compute_gae(*arguments, out=(np.empty(2, np.float32), np.empty(2)))
    with pytest.raises(ValueError, match=r"out\[1\] must have shape \(2,\), got \(3,"):
        reference.compute_gae(*arguments, out=(np.empty(2), np.empty(3)))


def read_only(n):
    """Return an array that cannot be written into."""
    array = np.zeros(n)
    array.flags.writeable = False
    return array


SHARED = np.zeros(1)


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (np.zeros((2, 1)), TypeError, "out must be a tuple of two arrays, got ndarray"),
        ([np.zeros(1), np.zeros(1)], TypeError, "out must be a tuple of two arrays, got list"),
        ((np.zeros(1),), TypeError, "out must be a tuple of two arrays, got tuple"),
        ((np.zeros(1), [0.0]), TypeError, r"out\[1\] must be a NumPy array, got list"),
        ((read_only(1), np.zeros(1)), ValueError, r"out\[0\] must be writeable"),
        ((SHARED, SHARED), ValueError, r"out\[1\] must not share memory with another array"),
    ],
)
def test_gae_refuses_what_the_native_one_refuses(out, error, message):
    """One step has results of length 1, of which an array of two rows would be a pair."""
    with pytest.raises(error, match=f"^{message}"):
        reference.compute_gae([1.0], [0.5], [0], 0.0, 0.9, 0.8, out=out)


def test_a_preference_pair_keeps_its_tokens():
    """As 32-bit ids, from anything that holds integers."""
    pair = DPOPair([1, 2, 3], np.arange(4), rejected_tokens=np.array([], np.int64))
    assert (pair.prompt_len(), pair.chosen_len(), pair.rejected_len()) == (3, 4, 0)
    assert pair.chosen_tokens.tolist() == [0, 1, 2, 3]
    assert pair.chosen_tokens.dtype == np.uint32
