"""ReLU multi-layer perceptrons, single and as ensembles.

Weights and biases are uniform in ±1/√fan-in, which is what ``torch.nn.Linear`` draws and what the
published implementations of the off-policy algorithms start from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812  # the field's name for it
from torch import Tensor, nn

from rlox.nn.layer_data import LayerData, perceptron
from rlox.nn.layers import empty_layer
from rlox.nn.noisy import NoisyLinear

__all__ = ["EnsembleMLP", "ReluMLP"]


def _uniform(parameter: Tensor, fan_in: int, generator: torch.Generator | None) -> None:
    bound = 1 / math.sqrt(fan_in)
    nn.init.uniform_(parameter, -bound, bound, generator=generator)


def _linear(n_in: int, n_out: int, generator: torch.Generator | None) -> nn.Linear:
    layer = empty_layer(nn.Linear, n_in, n_out)
    _uniform(layer.weight, n_in, generator)
    _uniform(layer.bias, n_in, generator)
    return layer


class ReluMLP(nn.Module):
    """Linear layers with ReLU between them.

    Args:
        sizes: input size, hidden sizes, output size.
        noisy_std: σ₀ of the layers, which are :class:`rlox.nn.NoisyLinear`; ``None`` adds no noise.
        generator: source of the weights; ``None`` uses torch's global one.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        noisy_std: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for n_in, n_out in pairwise(sizes):
            if noisy_std is None:
                self.layers.append(_linear(n_in, n_out, generator))
            else:
                self.layers.append(NoisyLinear(n_in, n_out, std=noisy_std, generator=generator))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs (B, n_out) of inputs (B, n_in)."""
        # called as functions: for small networks calling modules costs as much as computing
        *hidden, last = cast("Iterable[nn.Linear]", self.layers)
        for layer in hidden:
            inputs = F.linear(inputs, layer.weight, layer.bias).relu_()
        return F.linear(inputs, last.weight, last.bias)

    def layer_data(self) -> LayerData:
        """Describe the layers; see :mod:`rlox.nn.layer_data`."""
        return perceptron(self.layers, "relu")  # type: ignore[arg-type]


class EnsembleMLP(nn.Module):
    """K independent ReLU perceptrons of one size, computed by batched products.

    Args:
        n_members: K.
        sizes: input size, hidden sizes, output size, of each.
        generator: source of the weights; ``None`` uses torch's global one.
    """

    def __init__(
        self, n_members: int, sizes: Sequence[int], *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.n_members = n_members
        self.weights = nn.ParameterList()
        """Per layer (K, n_in, n_out)."""
        self.biases = nn.ParameterList()
        """Per layer (K, 1, n_out)."""
        for n_in, n_out in pairwise(sizes):
            weight = nn.Parameter(torch.empty(n_members, n_in, n_out))
            bias = nn.Parameter(torch.empty(n_members, 1, n_out))
            _uniform(weight, n_in, generator)
            _uniform(bias, n_in, generator)
            self.weights.append(weight)
            self.biases.append(bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the members' outputs (K, B, n_out) of the same inputs (B, n_in)."""
        outputs = inputs.expand(self.n_members, *inputs.shape)
        *hidden, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            outputs = torch.baddbmm(bias, outputs, weight).relu_()
        return torch.baddbmm(last[1], outputs, last[0])
