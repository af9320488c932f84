"""Elementwise functions of policy files, computed with NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ACTIVATIONS", "sigmoid"]

Array = npt.NDArray[Any]


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + e^-x)."""
    # of the negative size, so that nothing overflows
    small = np.exp(-np.abs(x))
    result: Array = np.where(x >= 0, 1, small) / (1 + small)
    return result


def _gelu(x: Array) -> Array:
    erf = np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2))
    result: Array = (0.5 * x * (1 + erf)).astype(np.float32)
    return result


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "bounded": lambda x: x / np.maximum(np.abs(x), 1),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "gelu": _gelu,
    "leaky_relu": lambda x: np.where(x > 0, x, np.float32(0.01) * x),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "symlog": lambda x: np.sign(x) * np.log1p(np.abs(x)),
    "tanh": np.tanh,
}
