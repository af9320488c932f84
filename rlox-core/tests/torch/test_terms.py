"""Means of what gradient steps report."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from rlox.learners.terms import Scalar, mean_terms


@dataclass(frozen=True)
class Terms:
    """Two scalars."""

    loss: Scalar
    value: Scalar


def test_means_are_floats_per_term() -> None:
    """Each name has the mean over the gradient steps."""
    terms = [Terms(torch.tensor(float(i)), torch.tensor(2.0)) for i in range(4)]
    assert mean_terms(Terms, terms) == {"loss": 1.5, "value": 2.0}
    numbers = [Terms(float(i), 2.0) for i in range(4)]
    assert mean_terms(Terms, numbers) == {"loss": 1.5, "value": 2.0}


def test_no_gradient_step_has_no_mean() -> None:
    """All names are there, as NaN."""
    means = mean_terms(Terms, [])
    assert list(means) == ["loss", "value"]
    assert all(math.isnan(mean) for mean in means.values())
