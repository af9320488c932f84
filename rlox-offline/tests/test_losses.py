"""Every objective against its equation, in plain loops or in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlox_offline import losses

B, A, K, N = 5, 3, 2, 4


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    """Return standard normal numbers in double precision."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def test_critic_loss_sums_over_critics() -> None:
    """One mean squared error each."""
    q_values = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    assert losses.critic_loss(q_values, torch.tensor([1.0, 1.0])).item() == 0.5 + 10.0


def test_td3_bc_weight_carries_no_gradient() -> None:
    """λ = α / mean |Q|, so scaling Q by a constant changes neither loss nor policy gradient."""
    weights = numbers(A, seed=1).requires_grad_()
    data, q_direction = numbers(B, A, seed=2), numbers(A, seed=3)

    def loss_and_gradient(scale: float) -> tuple[float, torch.Tensor]:
        actions = weights * numbers(B, A, seed=4)
        q_values = scale * (actions @ q_direction)
        loss = losses.td3_bc_actor_loss(q_values, actions, data, alpha=2.5)
        return loss.item(), torch.autograd.grad(loss, weights)[0]

    loss, gradient = loss_and_gradient(1.0)
    scaled_loss, scaled_gradient = loss_and_gradient(1000.0)
    assert loss == pytest.approx(scaled_loss, rel=1e-9)
    torch.testing.assert_close(gradient, scaled_gradient)
    actions = (weights * numbers(B, A, seed=4)).detach().numpy()
    q_values = actions @ q_direction.numpy()
    cloning = sum((a - d) ** 2 for a, d in zip(actions.ravel(), data.numpy().ravel(), strict=True))
    expected = -2.5 / np.mean(np.abs(q_values)) * np.mean(q_values) + cloning / (B * A)
    assert loss == pytest.approx(expected, rel=1e-9)


@given(expectile=st.floats(0.05, 0.95))
def test_minimiser_of_the_expectile_loss_is_the_expectile(expectile: float) -> None:
    """At the minimum τ Σ (x - m)₊ = (1 - τ) Σ (m - x)₊; for {0, 1} that is m = τ."""
    estimate = torch.tensor(expectile, dtype=torch.float64, requires_grad=True)
    loss = losses.expectile_loss(torch.tensor([0.0, 1.0]) - estimate, expectile)
    assert torch.autograd.grad(loss, estimate)[0].item() == pytest.approx(0.0, abs=1e-12)


def test_advantage_weights_are_bounded() -> None:
    """exp(β A), at most 100."""
    weights = losses.advantage_weights(torch.tensor([0.0, 1.0, 5.0]), 3.0, 100.0)
    assert weights.tolist() == pytest.approx([1.0, math.exp(3.0), 100.0])


def test_calibrated_penalty_equals_plain_loops() -> None:
    """Log Σ exp(max(Q, G) - log density) of the policy's actions, unbounded for random ones."""
    random_q, policy_q = numbers(K, N, B, seed=1), numbers(K, 2 * N, B, seed=2).requires_grad_()
    log_probs, data_q, bounds = numbers(2 * N, B, seed=3), numbers(K, B, seed=4), numbers(B, seed=5)
    penalty = losses.cql_penalty(random_q, policy_q, log_probs, data_q, A, bounds)
    values = policy_q.detach().numpy()
    for k in range(K):
        total = 0.0
        for b in range(B):
            terms = [math.exp(random_q[k, i, b]) / 0.5**A for i in range(N)]
            raised = [max(values[k, i, b], bounds[b].item()) for i in range(2 * N)]
            densities = log_probs[:, b].exp().tolist()
            terms += [math.exp(q) / p for q, p in zip(raised, densities, strict=True)]
            total += math.log(sum(terms)) - data_q[k, b].item()
        assert penalty[k].item() == pytest.approx(total / B, rel=1e-9)
    gradient = torch.autograd.grad(penalty.sum(), policy_q)[0]
    assert torch.equal(gradient > 0, policy_q > bounds)


@given(st.lists(st.floats(-100, 100), min_size=B, max_size=B), st.integers(0, 99))
def test_calibrated_penalty_is_at_least_the_plain_one(bounds: list[float], seed: int) -> None:
    """It equals the plain one to the bit if the bounds are below all values."""
    values = (numbers(K, N, B, seed=seed), numbers(K, N, B, seed=seed + 1))
    given = (*values, numbers(N, B, seed=2), numbers(K, B, seed=3), A)
    plain = losses.cql_penalty(*given)
    lower = torch.tensor(bounds, dtype=torch.float64)
    assert (losses.cql_penalty(*given, lower) >= plain).all()
    for low in (-100.0, -math.inf):
        assert torch.equal(losses.cql_penalty(*given, torch.full((B,), low)), plain)


def test_bc_loss() -> None:
    """Mean squared error over batch and dimensions."""
    assert losses.bc_loss(torch.zeros(2, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]])).item() == 7.5
