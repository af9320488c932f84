"""Returns and V-trace against sums written from the definitions, one element at a time."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox_native import (
    compute_discounted_returns,
    compute_lambda_returns,
    compute_n_step_returns,
    compute_vtrace,
)

FACTORS = st.floats(0, 1)


@st.composite
def rollouts(draw):
    """A time-major rollout: rewards, values, terminated, truncated, final_values, last_values."""
    shape = draw(st.tuples(st.integers(1, 25), st.integers(1, 5)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    terminated, truncated = rng.random((2, *shape)) < draw(st.sampled_from([0.0, 0.2, 0.9]))
    rewards, values, final_values = 5 * rng.standard_normal((3, *shape))
    return rewards, values, terminated, truncated, final_values, rng.standard_normal(shape[1])


def episode(rollout, env, start):
    """Return rewards and next values from ``start`` to the episode's or the rollout's end."""
    rewards, values, terminated, truncated, final_values, last_values = rollout
    collected, following = [], []
    for t in range(start, len(rewards)):
        collected.append(rewards[t, env])
        if terminated[t, env] or truncated[t, env]:
            following.append(0.0 if terminated[t, env] else final_values[t, env])
            break
        following.append(values[t + 1, env] if t + 1 < len(rewards) else last_values[env])
    return collected, following


def n_step(collected, following, gamma, n):
    """Sum n discounted rewards, or as many as there are, and the value after them (eq. 7.1)."""
    n = min(n, len(collected))
    terms = [gamma**k * reward for k, reward in enumerate(collected[:n])]
    return math.fsum([*terms, gamma**n * following[n - 1]])


def each_element(rollout, function):
    """Return the array of ``function(rewards, next values)`` for every element's episode."""
    n_steps, n_envs = rollout[0].shape
    return np.array(
        [[function(*episode(rollout, env, t)) for env in range(n_envs)] for t in range(n_steps)]
    )


def arguments(rollout):
    """Return a rollout's arrays as arguments of the functions."""
    rewards, values, terminated, truncated, final_values, last = rollout
    return (rewards, values, terminated, last), {
        "truncated": truncated,
        "final_values": final_values,
    }


@given(rollouts(), FACTORS)
def test_discounted_returns_equal_the_sum(rollout, gamma):
    """Equation 3.9, with the value of whatever follows the last reward."""
    (rewards, _, dones, last), cuts = arguments(rollout)
    expected = each_element(rollout, lambda r, v: n_step(r, v, gamma, len(r)))
    got = compute_discounted_returns(rewards, dones, last, gamma, **cuts)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@given(rollouts(), FACTORS, st.integers(1, 30))
def test_n_step_returns_equal_the_sum(rollout, gamma, n):
    """Equation 7.1; n beyond the end counts to the end."""
    got = compute_n_step_returns(*arguments(rollout)[0], gamma, n, **arguments(rollout)[1])
    expected = each_element(rollout, lambda r, v: n_step(r, v, gamma, n))
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@given(rollouts(), FACTORS, FACTORS)
def test_lambda_returns_mix_all_n_step_returns(rollout, gamma, lam):
    """Equation 12.3: (1 - λ) Σ λ^{n-1} G^{(n)}, the last one with all the rest of the weight."""

    def mixture(collected, following):
        last = len(collected)
        terms = [
            (1 - lam) * lam ** (n - 1) * n_step(collected, following, gamma, n)
            for n in range(1, last)
        ]
        return math.fsum([*terms, lam ** (last - 1) * n_step(collected, following, gamma, last)])

    got = compute_lambda_returns(*arguments(rollout)[0], gamma, lam, **arguments(rollout)[1])
    np.testing.assert_allclose(got, each_element(rollout, mixture), rtol=1e-9, atol=1e-9)


@given(rollouts(), FACTORS, st.floats(0, 2), st.floats(0, 2), st.integers(0, 2**32))
def test_vtrace_equals_the_sum(rollout, gamma, rho_bar, c_bar, seed):
    """Equation 1: vs = V + Σ γ^k (Π c) ρ δ to the episode's end; advantages from vs."""
    rewards, values = rollout[:2]
    n_steps, n_envs = rewards.shape
    log_rhos = np.random.default_rng(seed).standard_normal(rewards.shape)
    expected_vs, expected_advantages = np.empty((2, n_steps, n_envs))
    for env in range(n_envs):
        for t in reversed(range(n_steps)):
            collected, following = episode(rollout, env, t)
            correction, trace = 0.0, 1.0
            for k, (reward, value) in enumerate(zip(collected, following, strict=True)):
                ratio = math.exp(log_rhos[t + k, env])
                delta = min(rho_bar, ratio) * (reward + gamma * value - values[t + k, env])
                correction += gamma**k * trace * delta
                trace *= min(c_bar, ratio)
            expected_vs[t, env] = values[t, env] + correction
            goes_on = len(collected) > 1
            next_vs = expected_vs[t + 1, env] if goes_on else following[0]
            rho = min(rho_bar, math.exp(log_rhos[t, env]))
            expected_advantages[t, env] = rho * (rewards[t, env] + gamma * next_vs - values[t, env])
    vs, advantages = compute_vtrace(
        log_rhos, *arguments(rollout)[0], gamma, rho_bar, c_bar, **arguments(rollout)[1]
    )
    np.testing.assert_allclose(vs, expected_vs, rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(advantages, expected_advantages, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": [1.0]}, r"values must have shape \(3,\)|values must have length 3"),
        ({"last_value": [1.0]}, "last_value must have"),
        ({"gamma": 1.5}, r"gamma must lie in \[0, 1\], got 1.5"),
        ({"n": 0}, "n must be at least 1, got 0"),
        ({"truncated": [0, 0, 1]}, "truncated and final_values come together"),
        ({"rewards": np.zeros((1, 1, 1))}, "rewards must have 1 or 2 dimensions, got 3"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    """Shapes, ranges and missing halves are ValueErrors."""
    good = {
        "rewards": [1.0, 2.0, 3.0], "values": [0.0] * 3, "dones": [0] * 3, "last_value": 0.0,
        "gamma": 0.9, "n": 2,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        compute_n_step_returns(**good | change)


def test_a_ratio_that_is_no_number_stays_one():
    """NaN is not truncated to a plausible ratio, and affects only its step and those before."""
    vs, _ = compute_vtrace([0.0, np.nan, np.inf], [1.0] * 3, [1.0] * 3, [0] * 3, 1.0, 0.5)
    assert np.isnan(vs).tolist() == [True, True, False]


def test_negative_truncations_are_refused():
    """ρ̄ and c̄ are not negative, and not NaN."""
    for name in ("rho_bar", "c_bar"):
        for wrong in (-1.0, math.nan):
            with pytest.raises(ValueError, match=f"{name} must lie in"):
                compute_vtrace([0.0], [1.0], [1.0], [0], 1.0, 0.9, **{name: wrong})
