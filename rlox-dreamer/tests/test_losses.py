"""The pure functions of DreamerV3 against independent formulas in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlox_dreamer.losses import (
    draw_one_hot,
    lambda_returns,
    log_of,
    mixed_probs,
    sample_mixed,
    symexp_bins,
    two_hot_loss,
    two_hot_mean,
)
from torch.nn import functional


@pytest.mark.parametrize("count", [255, 41, 40])
def test_bins_are_symmetric_and_span_symexp_of_20(count):
    """The bins are symexp(-20 … 20), eq. 10, exactly mirrored."""
    bins = symexp_bins(count)
    assert len(bins) == count
    assert torch.equal(bins, -bins.flip(0))
    assert bins[-1].item() == pytest.approx(np.expm1(20), rel=1e-6)
    assert (bins.diff() >= 0).all()


def two_hot(x, bins):
    """Return the weights (K,) of the bins in the loss for a value."""
    return -two_hot_loss(torch.eye(len(bins)), torch.full((len(bins),), x), bins)


@given(st.floats(-1e5, 1e5))
def test_two_hot_weights_average_to_the_value(x):
    """At most two neighbouring bins have weight, which sums to 1."""
    bins = symexp_bins(255)
    weights = two_hot(x, bins)
    places = weights.nonzero().flatten()
    assert len(places) <= 2
    assert places.max() - places.min() <= 1
    assert weights.sum().item() == pytest.approx(1)
    assert (weights.double() @ bins.double()).item() == pytest.approx(x, rel=1e-4, abs=1e-4)


def test_values_beyond_the_bins_get_the_outermost_one():
    """Values beyond the bins are not extrapolated."""
    bins = torch.tensor([-1.0, 0.0, 1.0])
    weights = torch.stack([two_hot(x, bins) for x in (-5.0, 7.0, 1.0)])
    assert torch.equal(weights, torch.tensor([[1.0, 0, 0], [0, 0, 1], [0, 0, 1]]))


@pytest.mark.parametrize("count", [255, 40])
def test_equal_logits_predict_exactly_zero(count):
    """Plain summation from left to right would leave a rounding error of thousands."""
    probs = functional.softmax(torch.zeros(3, count), -1)
    assert (two_hot_mean(probs, symexp_bins(count)) == 0).all()


def test_unimix_gives_every_class_its_floor():
    """The floor 0.01 / C holds for any logits; the probabilities still sum to 1."""
    probs = mixed_probs(torch.tensor([[50.0, 0, 0, -50]]), 0.01)
    assert probs.sum().item() == pytest.approx(1)
    assert probs.min().item() == pytest.approx(0.0025, rel=1e-5)
    logits = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(mixed_probs(logits, 0), functional.softmax(logits, -1))
    assert log_of(mixed_probs(torch.tensor([0.0, 1e4]), 0)).isfinite().all()


@pytest.mark.parametrize("share", [0.0, 0.01])
def test_mixed_probabilities_have_their_gradient(share):
    """Compared with finite differences, with gradients into only some outputs."""
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).double()
    assert torch.autograd.gradcheck(
        lambda x: mixed_probs(x, share), (logits.requires_grad_(),), raise_exception=True
    )


def test_samples_pass_the_gradient_of_their_probabilities():
    """Straight-through: values are one-hot, gradients those of the probabilities."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    weights, more = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    noise = torch.rand(5, generator=generator, dtype=torch.float64)
    probs, samples = sample_mixed(logits, 0.01, noise)
    assert torch.equal(samples.detach().sort(-1).values, torch.eye(4)[[3] * 5].double())
    (both,) = torch.autograd.grad((weights * samples + more * probs).sum(), logits)
    mixed = 0.99 * functional.softmax(logits, -1) + 0.01 / 4
    (expected,) = torch.autograd.grad(((weights + more) * mixed).sum(), logits)
    torch.testing.assert_close(both, expected)
    probs, samples = sample_mixed(logits, 0.01, noise)
    (through,) = torch.autograd.grad((weights * samples).sum(), logits)
    mixed = 0.99 * functional.softmax(logits, -1) + 0.01 / 4
    (expected,) = torch.autograd.grad((weights * mixed).sum(), logits)
    torch.testing.assert_close(through, expected)


def _slow_returns(rewards, discounts, values, lam, last):
    steps, count = rewards.shape
    returns = np.zeros((steps - 1, count))
    for b in range(count):
        following = values[-1, b]
        for t in range(steps - 1, 0, -1):
            trace = 0.0 if last[t, b] else lam
            mixed = (1 - trace) * values[t, b] + trace * following
            following = rewards[t, b] + discounts[t, b] * mixed
            returns[t - 1, b] = following
    return returns


@pytest.mark.parametrize("lam", [0.0, 0.95, 1.0])
def test_lambda_returns_equal_a_loop(lam):
    """Eq. 7 step by step, with episodes that end within the sequence."""
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 9, 5))
    discounts = rng.random((9, 5))
    last = rng.random((9, 5)) < 0.2
    given_arrays = (torch.from_numpy(x) for x in (rewards, discounts, values))
    returns = lambda_returns(*given_arrays, lam, torch.from_numpy(last))
    expected = _slow_returns(rewards, discounts, values, lam, last)
    np.testing.assert_allclose(returns, expected, rtol=1e-12)


def test_one_hot_draws_follow_the_distribution():
    """Uniform numbers choose classes through the inverse distribution function."""
    probs = torch.tensor([0.2, 0.0, 0.5, 0.3])
    noise = (torch.arange(1000) + 0.5) / 1000
    drawn = draw_one_hot(probs.expand(1000, 4), noise)
    torch.testing.assert_close(drawn.mean(0), probs, atol=1e-3, rtol=0)
