"""Activations by name."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

from rlox_rl8.nn.modules.module import Module

__all__ = ["ACTIVATIONS", "SquaredReLU", "get_activation"]


class SquaredReLU(Module[[Tensor], Tensor]):
    """max(x, 0)²."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the squares."""
        return x.relu().square()


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "celu": nn.CELU, "elu": nn.ELU, "gelu": nn.GELU, "hard_shrink": nn.Hardshrink,
    "hard_sigmoid": nn.Hardsigmoid, "hard_swish": nn.Hardswish, "hard_tanh": nn.Hardtanh,
    "identity": nn.Identity, "leaky_relu": nn.LeakyReLU, "log_sigmoid": nn.LogSigmoid,
    "log_softmax": nn.LogSoftmax, "mish": nn.Mish, "relu": nn.ReLU, "relu6": nn.ReLU6,
    "selu": nn.SELU, "sigmoid": nn.Sigmoid, "softmax": nn.Softmax, "softplus": nn.Softplus,
    "softsign": nn.Softsign, "squared_relu": SquaredReLU, "swish": nn.SiLU, "tanh": nn.Tanh,
}  # fmt: skip

KEPT = frozenset({"hard_sigmoid", "hard_swish", "mish", "swish"})
"""Activations whose gradient needs their input: they may not overwrite it."""


def get_activation(name: str, /, **params: Any) -> nn.Module:
    """Return the activation called ``name``.

    Args:
        name: of the activation.
        params: arguments of its class. ``inplace=True`` overwrites the input, if the activation
            can without harm to the gradient; the others ignore it.

    Raises:
        ValueError: there is none.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}, got {name!r}")
    if "inplace" in params:
        takes = "inplace" in inspect.signature(ACTIVATIONS[name]).parameters
        if name in KEPT or not takes:
            del params["inplace"]
    return ACTIVATIONS[name](**params)
