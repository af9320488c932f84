"""Tests of :mod:`rlox.reference.gae` against hand computation and the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlox.reference import (
    compute_gae,
    compute_gae_batched,
    compute_gae_batched_f32,
    compute_gae_time_major,
)

Rollout = dict[str, Any]


def column(values: Any, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    """Return (T,) values as those of one env, (T, 1)."""
    return np.array(values, dtype)[:, None]


def test_golden_values_without_an_end() -> None:
    """Three steps of one episode that goes on after them.

    γ = 1/2, λ = 1/2, γλ = 1/4; r = 1, 2, 4; V = 2, 4, 8; last value 16.
        δ_2 = 4 + 8 - 8 = 4              A_2 = 4
        δ_1 = 2 + 4 - 4 = 2              A_1 = 2 + 4/4 = 3
        δ_0 = 1 + 2 - 2 = 1              A_0 = 1 + 3/4 = 1.75
    """
    advantages, returns = compute_gae([1, 2, 4], [2, 4, 8], [0, 0, 0], 16, 0.5, 0.5)
    assert advantages.tolist() == [1.75, 3.0, 4.0]
    assert returns.tolist() == [3.75, 7.0, 12.0]


def test_golden_values_with_a_termination() -> None:
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


def test_golden_values_with_a_truncation() -> None:
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


def test_termination_wins_over_truncation() -> None:
    """A step that is both has no value beyond, here δ = 2 - 4."""
    advantages, _ = compute_gae_time_major(
        column([2.0]), column([4.0]), column([1], bool), column([1], bool), column([6.0]),
        np.array([16.0]), 0.5, 0.5,
    )  # fmt: skip
    assert advantages.tolist() == [[-2.0]]


numbers = st.integers(-64, 64).map(lambda n: n / 8)
unit = st.integers(0, 16).map(lambda n: n / 16)


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    """Draw a rollout of T steps of N envs with both kinds of ends anywhere."""
    shape = (draw(st.integers(1, 8)), draw(st.integers(1, 3)))

    def array(elements: Any, shape: tuple[int, ...] = shape) -> np.ndarray[Any, Any]:
        size = int(np.prod(shape))
        return np.array(draw(st.lists(elements, min_size=size, max_size=size))).reshape(shape)

    return {
        "rewards": array(numbers),
        "values": array(numbers),
        "terminated": array(st.booleans()),
        "truncated": array(st.booleans()),
        "final_values": array(numbers),
        "last_values": array(numbers, shape[1:]),
    }


def oracle(rollout: Rollout, gamma: float, lam: float) -> np.ndarray[Any, Any]:
    """Sum A_t = Σ_l (γλ)^l δ_{t+l} up to the episode's end, for each step separately."""
    n_steps, n_envs = rollout["rewards"].shape
    advantages = np.zeros((n_steps, n_envs))
    for i in range(n_envs):
        for t in range(n_steps):
            for k in range(t, n_steps):
                terminated = bool(rollout["terminated"][k, i])
                truncated = bool(rollout["truncated"][k, i])
                if terminated:
                    following = 0.0
                elif truncated:
                    following = rollout["final_values"][k, i]
                elif k + 1 < n_steps:
                    following = rollout["values"][k + 1, i]
                else:
                    following = rollout["last_values"][i]
                delta = rollout["rewards"][k, i] + gamma * following - rollout["values"][k, i]
                advantages[t, i] += (gamma * lam) ** (k - t) * delta
                if terminated or truncated:
                    break
    return advantages


@given(rollouts(), unit, unit)
def test_equals_the_sum_of_the_definition(rollout: Rollout, gamma: float, lam: float) -> None:
    """The backward recursion equals the sum of discounted temporal differences."""
    advantages, returns = compute_gae_time_major(**rollout, gamma=gamma, lam=lam)
    np.testing.assert_allclose(advantages, oracle(rollout, gamma, lam), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(returns, advantages + rollout["values"])


@given(rollouts(), unit, unit)
def test_final_values_are_read_only_where_truncated(
    rollout: Rollout, gamma: float, lam: float
) -> None:
    """What stands elsewhere, NaN included, plays no part."""
    expected = compute_gae_time_major(**rollout, gamma=gamma, lam=lam)[0]
    unread = ~rollout["truncated"] | rollout["terminated"]
    changed = {**rollout, "final_values": np.where(unread, np.nan, rollout["final_values"])}
    got = compute_gae_time_major(**changed, gamma=gamma, lam=lam)[0]
    np.testing.assert_array_equal(got, expected)


@given(rollouts(), unit, unit)
def test_flat_forms_equal_the_time_major_one(rollout: Rollout, gamma: float, lam: float) -> None:
    """Env-major flat arrays and single trajectories are other layouts of the same."""
    rollout["truncated"][:] = False
    n_steps, n_envs = rollout["rewards"].shape
    advantages, returns = compute_gae_time_major(**rollout, gamma=gamma, lam=lam)
    flat = [rollout[key].T.ravel() for key in ("rewards", "values", "terminated")]
    batched = compute_gae_batched(*flat, rollout["last_values"], n_steps, gamma, lam)
    np.testing.assert_array_equal(batched, [advantages.T.ravel(), returns.T.ravel()])
    for i in range(n_envs):
        single = compute_gae(
            *(rollout[key][:, i] for key in ("rewards", "values", "terminated")),
            rollout["last_values"][i],
            gamma,
            lam,
        )
        np.testing.assert_array_equal(single, [advantages[:, i], returns[:, i]])


def test_result_has_the_rewards_dtype() -> None:
    """float32 in, float32 out; everything else is computed in float64."""
    arguments = [[1.0, 2.0], [0.5, 0.5], [0, 1], [0.0], 2, 0.9, 0.9]
    assert [a.dtype for a in compute_gae_batched_f32(*arguments)] == [np.float32] * 2  # type: ignore[arg-type]
    assert [a.dtype for a in compute_gae_batched(*arguments)] == [np.float64] * 2  # type: ignore[arg-type]
    np.testing.assert_allclose(
        compute_gae_batched_f32(*arguments)[0],  # type: ignore[arg-type]
        compute_gae_batched(*arguments)[0],  # type: ignore[arg-type]
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"values": [1.0]}, ValueError, "values must have length 2, got 1"),
        ({"dones": [0, 0, 1]}, ValueError, "dones must have length 2, got 3"),
        (
            {"rewards": [[1.0, 2.0]]},
            ValueError,
            "rewards must be one-dimensional, got shape (1, 2)",
        ),
        ({"rewards": ["a", "b"]}, TypeError, "rewards must be real numbers, got dtype <U1"),
        ({"values": [1j, 2]}, TypeError, "values must be real numbers, got dtype complex128"),
        ({"gamma": 1.2}, ValueError, "gamma must lie in [0, 1], got 1.2"),
        ({"lam": -0.1}, ValueError, "lam must lie in [0, 1], got -0.1"),
        ({"gamma": float("nan")}, ValueError, "gamma must lie in [0, 1], got nan"),
    ],
)
def test_wrong_trajectory_is_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Every mistake has its message."""
    arguments: dict[str, Any] = {
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
def test_wrong_shape_is_refused(name: str, value: Any, message: str) -> None:
    """Nothing is broadcast."""
    arguments: dict[str, Any] = dict.fromkeys(
        ("rewards", "values", "terminated", "truncated", "final_values"), np.zeros((3, 2))
    )
    arguments["last_values"] = np.zeros(2)
    with pytest.raises(ValueError, match="must have shape") as caught:
        compute_gae_time_major(**{**arguments, name: value}, gamma=0.9, lam=0.9)
    assert str(caught.value) == message
