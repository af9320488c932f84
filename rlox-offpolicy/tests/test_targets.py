"""The targets, on numbers worked out by hand from the papers' equations."""

from __future__ import annotations

import torch
from rlox_offpolicy.targets import (
    clipped_double_values,
    double_values,
    max_values,
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


def test_max_values_take_the_target_networks_largest() -> None:
    """Mnih et al. 2015: max over a of Q'."""
    close(max_values(LAGGING), [9.0, 8.0])


def test_double_values_judge_the_online_networks_choice() -> None:
    """Van Hasselt et al. 2016: Q chooses the actions 1 and 0, Q' says what they are worth."""
    close(double_values(ONLINE, LAGGING), [1.0, -4.0])


def test_clipped_double_values_are_the_critics_smallest() -> None:
    """Fujimoto et al. 2018: the minimum over critics, transition by transition."""
    close(clipped_double_values(torch.tensor([[1.0, 5.0], [2.0, -3.0]])), [1.0, -3.0])


def test_soft_values_pay_for_entropy() -> None:
    """Haarnoja et al. 2018b: min Q - α log π, with α = 0.5."""
    next_q = torch.tensor([[1.0, 5.0], [2.0, -3.0]])
    log_probs = torch.tensor([-2.0, 4.0])
    close(soft_values(next_q, log_probs, torch.tensor(0.5)), [1.0 + 1.0, -3.0 - 2.0])


def test_smoothed_actions_clip_the_noise_and_then_the_action() -> None:
    """Fujimoto et al. 2018: noise within ±0.5, the sum within ±1."""
    actions = torch.tensor([[0.0, 0.9, -0.9, 0.2]])
    noise = torch.tensor([[2.0, 0.3, -0.7, -0.1]])
    torch.testing.assert_close(
        smoothed_actions(actions, noise, 0.5), torch.tensor([[0.5, 1.0, -1.0, 0.1]])
    )
