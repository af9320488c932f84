"""ValueNorm and PopArt against plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rlox_marl.policies import PopArt, ValueNorm


def weighted(batches, beta):
    """Return mean and deviation with the weights that the recursion implies."""
    last = len(batches) - 1
    weights = np.array([(1 - beta) * beta ** (last - i) for i in range(len(batches))])
    weights /= weights.sum()
    mean = sum(w * np.mean(x) for w, x in zip(weights, batches, strict=True))
    square = sum(w * np.mean(x**2) for w, x in zip(weights, batches, strict=True))
    return mean, np.sqrt(max(square - mean**2, 1e-2))


def targets(seed, n, scale=30.0, offset=-200.0):
    """Return batches of value targets."""
    rng = np.random.default_rng(seed)
    return [rng.normal(offset + i, scale, (16, 3)) for i in range(n)]


@pytest.mark.parametrize("beta", [0.0, 0.9, 0.99999])
@pytest.mark.parametrize("n", [1, 2, 40])
def test_equals_the_weighted_moments(beta, n) -> None:
    """Debiased, so that the first update counts in full."""
    norm = ValueNorm(beta)
    batches = targets(n, n)
    for batch in batches:
        norm.update(torch.tensor(batch))
    mean, std = weighted(batches, beta)
    values = torch.linspace(-300, 10, 7)
    expected = (values.numpy() - mean) / std
    np.testing.assert_allclose(norm.normalize(values), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(norm.denormalize(norm.normalize(values)), values, rtol=1e-5)
    assert norm.normalize(values).dtype == torch.float32


def test_variance_has_a_floor_and_large_means_cancel_nothing() -> None:
    """In float32, 1e4 squared leaves nothing of a deviation of 0.5."""
    norm = ValueNorm()
    norm.update(torch.full((5,), 3.0))
    assert norm.std.item() == pytest.approx(0.1)
    norm = ValueNorm()
    batch = 1e4 + 0.5 * np.random.default_rng(0).normal(size=1000)
    norm.update(torch.tensor(batch))
    assert norm.std.item() == pytest.approx(batch.std(), rel=1e-5)


def test_does_nothing_before_the_first_update() -> None:
    """Values stay unchanged."""
    values = torch.tensor([1.0, -2.0])
    assert torch.equal(ValueNorm().normalize(values), values)
    assert torch.equal(ValueNorm().denormalize(values), values)


def test_popart_rescales_as_its_formula_says() -> None:
    """Equations 9 and 10 of the paper, applied in place for optimisers."""
    torch.manual_seed(0)
    head = PopArt(4, beta=0.9)
    weight, bias = head.head.weight, head.head.bias
    first, second = targets(1, 2)
    head.update(torch.tensor(first))
    w, b = head.head.weight.detach().numpy().copy(), head.head.bias.detach().numpy().copy()
    (mean, std), (new_mean, new_std) = weighted([first], 0.9), weighted([first, second], 0.9)
    head.update(torch.tensor(second))
    np.testing.assert_allclose(head.head.weight.detach(), std * w / new_std, rtol=1e-5)
    expected = (std * b + mean - new_mean) / new_std
    np.testing.assert_allclose(head.head.bias.detach(), expected, rtol=1e-5)
    np.testing.assert_allclose(head.normalize(torch.tensor([2.0])), (2 - new_mean) / new_std, 1e-5)
    assert head.head.weight is weight
    assert head.head.bias is bias


def test_wrong_arguments_are_refused() -> None:
    """The message names the value."""
    with pytest.raises(ValueError, match=r"beta must lie in \[0, 1\), got 1.0"):
        ValueNorm(1.0)
    with pytest.raises(ValueError, match="at least one value target"):
        ValueNorm().update(torch.zeros(0))
