"""Layers of DreamerV3's networks: RMSNorm, block-diagonal linear layers, initial weights."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from rlox.nn.layer_data import LayerData, activation, array, chain, linear
from rlox.nn.mlp import empty_layer
from torch import Tensor, nn
from torch.nn import functional

EPS = 1e-4
"""Added to the mean square in RMSNorm."""

STD_OF_TRUNCATED = 0.87962566103423978
"""Standard deviation of the standard normal distribution truncated at ±2."""


def at_least_float32(x: Tensor) -> Tensor:
    """Return float64 unchanged, and all else as float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@torch.no_grad()
def truncated_normal_(
    weight: Tensor, fan_in: int, scale: float, generator: torch.Generator
) -> None:
    """Fill a weight from a normal truncated at two deviations, with deviation scale / √fan_in."""
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


def _inverse_rms(x: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return norm.square_().div_(x.shape[-1]).add_(EPS).rsqrt_()


class _NormSilu(torch.autograd.Function):
    """RMSNorm and SiLU in few passes over the rows, which dominate a small model's time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """Return silu(x / rms(x) * weight)."""
        inverse = _inverse_rms(x)
        unit = x * inverse
        scaled = unit * weight
        ctx.save_for_backward(unit, inverse, weight, scaled)
        return functional.silu(scaled)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of x and of the weight."""
        unit, inverse, weight, scaled = ctx.saved_tensors
        of_scaled = torch.ops.aten.silu_backward(gradients[0], scaled)
        product = of_scaled * unit
        of_weight = product.reshape(-1, *weight.shape).sum(0)
        along = product.mul_(weight).mean(-1, keepdim=True)
        torch.mul(unit, along, out=product)
        return of_scaled.mul_(weight).sub_(product).mul_(inverse), of_weight


def norm_silu(x: Tensor, weight: Tensor) -> Tensor:
    """Return silu(RMSNorm(x)) of features (..., n), computed in the precision of the scale.

    Args:
        x: features; the mean square is over the last axis.
        weight: (..., n) their scale; its axes are the last ones of ``x``.

    Source:
        Zhang and Sennrich 2019, "Root mean square layer normalization", eq. 4.
    """
    wide = x.to(weight.dtype)
    if x.is_cuda:
        normed = functional.rms_norm(wide, wide.shape[-1:], None, EPS)
        return functional.silu(normed * weight).to(x.dtype)
    if not torch.is_grad_enabled():
        normed = (wide * _inverse_rms(wide)).mul_(weight)
        return functional.silu(normed, inplace=True).to(x.dtype)
    active: Tensor = _NormSilu.apply(wide, weight)
    return active.to(x.dtype)


class NormSilu(nn.Module):
    """RMSNorm with a scale for each feature, and SiLU; see :func:`norm_silu`.

    Args:
        size: number of features, the last axis.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., size)."""
        return norm_silu(x, self.weight)

    def layer_data(self) -> LayerData:
        """Describe the layer; see :mod:`rlox.nn.layer_data`."""
        return self.along(-1)

    def along(self, axis: int, *behind: int) -> LayerData:
        """Describe the layer over another axis, which is followed by dimensions ``behind``."""
        weight = array(self.weight).reshape(-1, *behind)
        norm = {"layer": "rms_norm", "weight": weight, "eps": EPS, "axis": axis}
        return chain(norm, activation("silu"))


class BlockLinear(nn.Module):
    """A linear layer with a block-diagonal weight: K blocks of inputs, each to its outputs.

    Args:
        inputs: number of inputs, a multiple of ``blocks``.
        outputs: number of outputs, a multiple of ``blocks``.
        blocks: K.
        generator: source of the weights.
        scale: factor on the weights' deviation 1 / √(inputs / K).
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
        """Return (B, outputs) for (B, inputs)."""
        return self.by_block(x).transpose(0, 1).flatten(1)

    def by_block(self, x: Tensor) -> Tensor:
        """Return (K, B, outputs / K) for (B, inputs)."""
        rows = x.reshape(len(x), self.blocks, -1).transpose(0, 1)
        bias = self.bias.view(self.blocks, 1, -1)
        return torch.baddbmm(bias.to(x.dtype), rows, self.weight.to(x.dtype))

    def layer_data(self) -> LayerData:
        """Describe the layer; see :mod:`rlox.nn.layer_data`."""
        weight, bias = array(self.weight), array(self.bias)
        return {"layer": "block_linear", "weight": weight, "bias": bias}


class Hidden(nn.Module):
    """A linear layer, RMSNorm and SiLU."""

    def __init__(self, inputs: int, units: int, generator: torch.Generator) -> None:
        super().__init__()
        self.linear = dense(inputs, units, generator)
        self.norm = NormSilu(units)

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., units) for (..., inputs)."""
        active: Tensor = self.norm(self.linear(x))
        return active

    def layer_data(self) -> LayerData:
        """Describe the layer; see :mod:`rlox.nn.layer_data`."""
        return chain(linear(self.linear), self.norm.layer_data())


def mlp(
    inputs: int,
    units: int,
    layers: int,
    generator: torch.Generator,
    *,
    outputs: int | None = None,
    scale: float = 1.0,
) -> nn.Sequential:
    """Return hidden layers, followed by a linear layer if there are ``outputs``.

    Args:
        inputs: number of inputs.
        units: width of the hidden layers.
        layers: number of hidden layers.
        generator: source of the weights.
        outputs: number of outputs; ``None`` ends with the last hidden layer.
        scale: factor on the output layer's weights.
    """
    sizes = [inputs] + [units] * layers
    parts: list[nn.Module] = [Hidden(a, b, generator) for a, b in pairwise(sizes)]
    if outputs is not None:
        parts.append(dense(sizes[-1], outputs, generator, scale=scale))
    return nn.Sequential(*parts)
