"""Comparison of what two learner backends make of the same batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch


def relative_error(ours: Any, reference: Any) -> float:
    """Return the largest difference, relative to the largest of the references."""
    ours, reference = np.asarray(ours, np.float64), np.asarray(reference, np.float64)
    return float(np.abs(ours - reference).max() / np.abs(reference).max())


def require_equal_updates(
    native: Any, torch_: Any, terms: Any, expected: Any, tolerance: float
) -> None:
    """Require the same parameters, moments, gradient, terms, counters and stream of orders.

    Args:
        native: an algorithm that has learnt in Rust.
        torch_: the same one that has learnt in torch.
        terms: what the update in Rust returned.
        expected: what torch's did.
        tolerance: how far parameters may differ, relatively; the others may ten times as far.
    """
    assert native.clock.gradient_steps == torch_.clock.gradient_steps
    assert relative_error(native.optimizer.parameters, torch_.optimizer.parameters) < tolerance
    for name, value in torch_.optimizer.state().items():
        assert relative_error(native.optimizer.state()[name], value) < 10 * tolerance, name
    gradients = native.learner.learner.gradients()
    assert relative_error(gradients, torch_.optimizer.gradients) < 10 * tolerance
    assert terms == pytest.approx(expected, rel=10 * tolerance, abs=10 * tolerance)
    drawn = [a.streams.torch("minibatches").get_state() for a in (native, torch_)]
    assert torch.equal(*drawn)
