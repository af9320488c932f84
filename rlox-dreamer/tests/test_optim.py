"""LaProp behind adaptive clipping, against 20 lines of NumPy."""

from functools import partial

import numpy as np
import pytest
import torch
from rlox.nn import FlatOptimizer
from rlox.nn.optimizers import AdaptiveClip
from rlox_dreamer.optim import LaProp
from torch import nn


def test_laprop_with_agc_equals_numpy() -> None:
    """Clip by the parameter's norm, divide by the root mean square, then average."""
    module = nn.Linear(4, 3)
    optimizer = FlatOptimizer(module, partial(LaProp), clip=AdaptiveClip(0.3))
    rng = np.random.default_rng(0)
    weights = [p.detach().numpy().astype(np.float64) for p in module.parameters()]
    squares = [np.zeros_like(w) for w in weights]
    momenta = [np.zeros_like(w) for w in weights]
    for step in range(1, 30):
        factors = [rng.normal(size=w.shape) * 10.0 ** rng.integers(-3, 3) for w in weights]
        pairs = zip(module.parameters(), factors, strict=True)
        loss = sum((p * torch.tensor(f, dtype=torch.float32)).sum() for p, f in pairs)
        optimizer.step(loss, 1e-2)
        for i, raw in enumerate(factors):
            bound = 0.3 * max(np.linalg.norm(weights[i]), 1e-3)
            gradient = raw * min(1.0, bound / np.linalg.norm(raw))
            squares[i] = 0.999 * squares[i] + 0.001 * gradient**2
            scaled = gradient / (np.sqrt(squares[i] / (1 - 0.999**step)) + 1e-20)
            momenta[i] = 0.9 * momenta[i] + 0.1 * scaled
            weights[i] -= 1e-2 * momenta[i] / (1 - 0.9**step)
    for p, w in zip(module.parameters(), weights, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), w, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "named"), [({"lr": -1}, "lr"), ({"betas": (1, 0)}, "betas"), ({"eps": 0}, "eps")]
)
def test_impossible_options_are_named(options: dict, named: str) -> None:
    """Each with its range."""
    with pytest.raises(ValueError, match=named):
        LaProp([torch.zeros(1)], **options)
