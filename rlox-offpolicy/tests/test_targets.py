"""The targets, on numbers computed by hand from the papers' equations."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlox_offpolicy.targets import (
    at_actions,
    categorical_projection,
    clipped_double_values,
    expected_soft_values,
    quantile_huber_loss,
    smoothed_actions,
    soft_values,
    td_targets,
)
from torch import Tensor

ONLINE = torch.tensor([[1.0, 5.0, 2.0], [0.0, -1.0, -2.0]])
LAGGING = torch.tensor([[3.0, 1.0, 9.0], [-4.0, 8.0, 6.0]])


def close(got: Tensor, expected: list[float]) -> None:
    """Assert equality to float rounding."""
    torch.testing.assert_close(got, torch.tensor(expected))


def test_td_targets_take_no_value_beyond_a_termination() -> None:
    """Y = r + discount V: the second transition terminated, the third has three steps behind it."""
    rewards, values = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 20.0, 30.0])
    discounts = torch.tensor([0.9, 0.0, 0.9**3])
    close(td_targets(rewards, discounts, values), [1 + 9, 2, 3 + 30 * 0.729])


def test_at_the_target_networks_best_actions_are_its_largest_values() -> None:
    """Mnih et al. 2015: max over a of Q'."""
    close(at_actions(LAGGING, LAGGING.argmax(-1, keepdim=True)), [9.0, 8.0])


def test_at_the_online_networks_best_actions_are_the_values_of_double_q_learning() -> None:
    """Van Hasselt et al. 2016: Q chooses the actions 1 and 0, Q' gives their values."""
    close(at_actions(LAGGING, ONLINE.argmax(-1, keepdim=True)), [1.0, -4.0])


def test_distributions_of_actions_are_taken_whole() -> None:
    """(B, A, n) outputs give the n values of one action per row."""
    outputs = torch.arange(12.0).view(2, 3, 2)
    torch.testing.assert_close(
        at_actions(outputs, torch.tensor([[2], [0]])), torch.tensor([[4.0, 5.0], [6.0, 7.0]])
    )


def project(
    probs: list[float], reward: float, discount: float, low: float, high: float
) -> list[float]:
    """Bellemare et al. 2017, algorithm 1, atom by atom; the mass lost at b = l = u goes to l."""
    n = len(probs)
    spacing = (high - low) / (n - 1)
    projected = [0.0] * n
    for j, p in enumerate(probs):
        moved = min(max(reward + discount * (low + j * spacing), low), high)
        b = (moved - low) / spacing
        lower, upper = math.floor(b), math.ceil(b)
        projected[min(lower, n - 1)] += p * (upper - b if upper > lower else 1.0)
        projected[min(upper, n - 1)] += p * (b - lower)
    return projected


@given(
    st.lists(st.floats(0.01, 1), min_size=2, max_size=12),
    st.floats(-5, 5),
    st.sampled_from([0.0, 0.5, 0.9, 0.99**3, 1.0]),
    st.floats(-4, 3),
    st.floats(0.5, 6),
)
def test_projection_equals_the_algorithm_written_out(
    weights: list[float], reward: float, discount: float, low: float, width: float
) -> None:
    """Eq. 7 equals algorithm 1; no mass is lost, and the mean is kept where possible."""
    probs = torch.tensor(weights) / sum(weights)
    support = torch.linspace(low, low + width, len(weights))
    got = categorical_projection(
        probs.unsqueeze(0), torch.tensor([reward]), torch.tensor([discount]), support
    )[0]
    expected = project(probs.tolist(), reward, discount, low, low + width)
    torch.testing.assert_close(got, torch.tensor(expected), atol=2e-5, rtol=1e-4)
    assert float(got.sum()) == pytest.approx(1, abs=1e-4)
    moved = reward + discount * support
    if float(moved.min()) >= low and float(moved.max()) <= low + width:
        assert float(got @ support) == pytest.approx(float(probs @ moved), abs=1e-3)


def test_quantile_loss_equals_the_sums_written_out() -> None:
    """Dabney et al. 2018, eq. 9 and 10: Σ over i, mean over j of abs(τ - 1{u < 0}) L(u)."""
    generator = torch.Generator().manual_seed(0)
    quantiles = 2 * torch.randn(5, 4, generator=generator)
    targets = 2 * torch.randn(5, 3, generator=generator)
    expected = []
    for row, goals in zip(quantiles.tolist(), targets.tolist(), strict=True):
        total = 0.0
        for i, theta in enumerate(row):
            for goal in goals:
                u = goal - theta
                huber = 0.5 * u * u if abs(u) <= 1 else abs(u) - 0.5
                total += abs((i + 0.5) / 4 - (u < 0)) * huber / 3
        expected.append(total)
    close(quantile_huber_loss(quantiles, targets), expected)


def test_clipped_double_values_are_the_critics_smallest() -> None:
    """Fujimoto et al. 2018: the minimum over critics, transition by transition."""
    close(clipped_double_values(torch.tensor([[1.0, 5.0], [2.0, -3.0]])), [1.0, -3.0])


def test_soft_values_pay_for_entropy() -> None:
    """Haarnoja et al. 2018b: min Q - α log π, with α = 0.5."""
    next_q = torch.tensor([[1.0, 5.0], [2.0, -3.0]])
    log_probs = torch.tensor([-2.0, 4.0])
    close(soft_values(next_q, log_probs, torch.tensor(0.5)), [1.0 + 1.0, -3.0 - 2.0])


def test_expected_soft_values_are_sums_over_actions() -> None:
    """Christodoulou 2019: probabilities ¼ and ¾, minima 1 and 2, α = 2."""
    next_q = torch.tensor([[[1.0, 4.0]], [[3.0, 2.0]]])
    log_probs = torch.tensor([[0.25, 0.75]]).log()
    expected = 0.25 * (1 - 2 * math.log(0.25)) + 0.75 * (2 - 2 * math.log(0.75))
    close(expected_soft_values(next_q, log_probs, torch.tensor(2.0)), [expected])


def test_smoothed_actions_clip_the_noise_and_then_the_action() -> None:
    """Fujimoto et al. 2018: noise within ±0.5, the sum within ±1."""
    actions = torch.tensor([[0.0, 0.9, -0.9, 0.2]])
    noise = torch.tensor([[2.0, 0.3, -0.7, -0.1]])
    torch.testing.assert_close(
        smoothed_actions(actions, noise, 0.5), torch.tensor([[0.5, 1.0, -1.0, 0.1]])
    )
