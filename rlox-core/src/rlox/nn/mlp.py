"""Multi-layer perceptrons."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812  # the field's name for it
from torch import Tensor, nn

from rlox.nn.devices import torch_threads

__all__ = ["TanhMLP"]


class TanhMLP(nn.Module):
    """Linear layers with tanh between them, weights orthogonal and biases 0.

    Args:
        sizes: input size, hidden sizes, output size.
        output_gain: scale of the last layer's weights; hidden layers have √2.
        generator: source of the weights; none: torch's global one.

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
            # skip_init: the default initialisation would draw from torch's global generator
            layer = nn.utils.skip_init(nn.Linear, n_in, n_out)  # type: ignore[no-untyped-call]
            last = len(self.layers) == len(sizes) - 2
            with torch_threads(1):  # the QR decomposition rounds differently on several
                nn.init.orthogonal_(layer.weight, output_gain if last else math.sqrt(2), generator)
            nn.init.zeros_(layer.bias)
            self.layers.append(layer)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs (B, n_out) of inputs (B, n_in)."""
        # called as functions: for small networks calling modules costs as much as computing
        *hidden, last = cast("Iterable[nn.Linear]", self.layers)
        for layer in hidden:
            inputs = F.linear(inputs, layer.weight, layer.bias).tanh_()
        return F.linear(inputs, last.weight, last.bias)
