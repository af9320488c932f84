"""Layers of DreamerV3's networks: RMSNorm, block-diagonal linear layers, their initial weights."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from rlox.nn.layers import empty_layer
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["BlockLinear", "Norm", "dense", "hidden_layer", "mlp", "truncated_normal_"]

STD_OF_TRUNCATED = 0.87962566103423978
"""Standard deviation of a standard normal number that is cut off at ±2."""


@torch.no_grad()
def truncated_normal_(
    weight: Tensor, fan_in: int, scale: float, generator: torch.Generator
) -> None:
    """Fill a weight with normal numbers within two deviations, of deviation ``scale`` / √fan-in."""
    if scale == 0:
        weight.zero_()
        return
    std = scale / STD_OF_TRUNCATED / math.sqrt(fan_in)
    nn.init.trunc_normal_(weight, 0.0, std, -2 * std, 2 * std, generator)


def dense(
    inputs: int, outputs: int, generator: torch.Generator, *, scale: float = 1.0
) -> nn.Linear:
    """Return a linear layer with truncated normal weights and biases of 0."""
    layer = empty_layer(nn.Linear, inputs, outputs)
    truncated_normal_(layer.weight, inputs, scale, generator)
    nn.init.zeros_(layer.bias)
    return layer


class Norm(nn.Module):
    """RMSNorm with a scale for each feature, computed in the precision of the scale.

    Args:
        size: number of features, the last axis.

    Source:
        Zhang and Sennrich 2019, "Root mean square layer normalization", eq. 4.
    """

    def __init__(self, size: int, eps: float = 1e-4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., size) features of mean square 1, times the scale."""
        wide = x.to(self.weight.dtype)
        return functional.rms_norm(wide, self.weight.shape, self.weight, self.eps).to(x.dtype)


class BlockLinear(nn.Module):
    """A linear layer with a block-diagonal weight: K blocks of inputs, each to its outputs.

    Args:
        inputs: number of inputs, a multiple of ``blocks``.
        outputs: number of outputs, a multiple of ``blocks``.
        blocks: K.
        generator: source of the weights.
        scale: factor of their deviation 1 / √(inputs / K).
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        blocks: int,
        generator: torch.Generator,
        *,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.blocks = blocks
        self.weight = nn.Parameter(torch.empty(blocks, inputs // blocks, outputs // blocks))
        self.bias = nn.Parameter(torch.zeros(outputs))
        truncated_normal_(self.weight.data, inputs // blocks, scale, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, outputs) of (B, inputs)."""
        rows = x.reshape(len(x), self.blocks, -1).transpose(0, 1)
        return torch.bmm(rows, self.weight.to(x.dtype)).transpose(0, 1).flatten(1) + self.bias

    def dense_weight(self) -> Tensor:
        """Return the (inputs, outputs) weight of the dense layer that computes the same."""
        weight: Tensor = torch.block_diag(*self.weight)  # type: ignore[no-untyped-call]
        return weight


class Hidden(nn.Module):
    """A linear layer, RMSNorm and SiLU."""

    def __init__(self, inputs: int, units: int, generator: torch.Generator) -> None:
        super().__init__()
        self.linear = dense(inputs, units, generator)
        self.norm = Norm(units)

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., units) of (..., inputs)."""
        return functional.silu(self.norm(self.linear(x)))


def hidden_layer(inputs: int, units: int, generator: torch.Generator) -> nn.Module:
    """Return a linear layer followed by RMSNorm and SiLU."""
    return Hidden(inputs, units, generator)


def mlp(
    inputs: int,
    units: int,
    layers: int,
    generator: torch.Generator,
    *,
    outputs: int | None = None,
    scale: float = 1.0,
) -> nn.Sequential:
    """Return hidden layers, and a linear one behind them if there are ``outputs``.

    Args:
        inputs: number of inputs.
        units: width of the hidden layers.
        layers: number of hidden layers.
        generator: source of the weights.
        outputs: number of outputs; ``None`` ends with the last hidden layer.
        scale: of the output layer's weights.
    """
    sizes = [inputs] + [units] * layers
    parts: list[nn.Module] = [Hidden(a, b, generator) for a, b in pairwise(sizes)]
    if outputs is not None:
        parts.append(dense(sizes[-1], outputs, generator, scale=scale))
    return nn.Sequential(*parts)
