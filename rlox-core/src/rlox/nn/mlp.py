"""Multi-layer perceptrons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812  # the field's name for it
from torch import Tensor, nn

from rlox.nn.devices import torch_threads
from rlox.nn.layer_data import LayerData, perceptron
from rlox.nn.layers import empty_layer

__all__ = ["TanhMLP", "orthogonal"]


def orthogonal(
    layer_class: type[nn.Module],
    *arguments: int,
    gain: float = math.sqrt(2),
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return a layer with orthogonal weights scaled by ``gain``, and biases 0.

    Args:
        layer_class: has parameters ``weight`` and ``bias``.
        arguments: of its constructor.
        gain: scale of the weights.
        generator: source of the weights; ``None`` uses torch's global one.
    """
    layer: Any = empty_layer(layer_class, *arguments)
    with torch_threads(1):  # the QR decomposition rounds differently on several
        nn.init.orthogonal_(layer.weight, gain, generator)
    nn.init.zeros_(layer.bias)
    return layer  # type: ignore[no-any-return]


class TanhMLP(nn.Module):
    """Linear layers with tanh between them, weights orthogonal and biases 0.

    Args:
        sizes: input size, hidden sizes, output size.
        output_gain: scale of the last layer's weights; hidden layers have √2.
        generator: source of the weights; ``None`` uses torch's global one.

    Source:
        Huang et al. 2022, "The 37 implementation details of PPO", detail 2.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        output_gain: float,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for n_in, n_out in pairwise(sizes):
            last = len(self.layers) == len(sizes) - 2
            gain = output_gain if last else math.sqrt(2)
            self.layers.append(orthogonal(nn.Linear, n_in, n_out, gain=gain, generator=generator))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs (B, n_out) of inputs (B, n_in)."""
        # called as functions: for small networks calling modules costs as much as computing
        *hidden, last = cast("Iterable[nn.Linear]", self.layers)
        for layer in hidden:
            inputs = F.linear(inputs, layer.weight, layer.bias).tanh_()
        return F.linear(inputs, last.weight, last.bias)

    def layer_data(self) -> LayerData:
        """Describe the layers; see :mod:`rlox.nn.layer_data`."""
        return perceptron(self.layers, "tanh")  # type: ignore[arg-type]
