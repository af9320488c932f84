"""The encoder: from observations to tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from rlox.nn.layer_data import LayerData, chain, layer_data, linear
from torch import Tensor, nn
from torch.nn import functional

from rlox_dreamer.layers import NormSilu, mlp, truncated_normal_
from rlox_dreamer.leaves import Leaf, by_name

__all__ = ["MULTIPLES", "Encoder", "convolution", "padded", "stages_of"]

MULTIPLES = (2, 3, 4, 4)
"""Channels of the convolutions, in units of ``depth``."""


def stages_of(resolution: tuple[int, int]) -> int:
    """Return how often images are halved: to 3 pixels of the shorter side, at most four times."""
    stages = 0
    while stages < len(MULTIPLES) and min(resolution) / 2 ** (stages + 1) >= 3:
        stages += 1
    return stages


def convolution(inputs: int, outputs: int, generator: torch.Generator) -> nn.Conv2d:
    """Return a 5x5 convolution that keeps height and width."""
    layer = nn.Conv2d(inputs, outputs, 5, padding=2, device="meta").to_empty(device="cpu")
    truncated_normal_(layer.weight, 25 * inputs, 1.0, generator)
    layer.bias = nn.Parameter(torch.zeros(outputs))
    return layer


class Halving(nn.Module):
    """A 5x5 convolution, max pooling to half the height and width, RMSNorm of channels and SiLU."""

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.conv = convolution(inputs, outputs, generator)
        self.norm = NormSilu(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, outputs, H / 2, W / 2) of (B, inputs, H, W)."""
        x = functional.max_pool2d(self.conv(x), 2)
        normed: Tensor = self.norm(x.permute(0, 2, 3, 1))
        return normed.permute(0, 3, 1, 2)

    def layer_data(self) -> LayerData:
        """Describe the layer; see :mod:`rlox.nn.layer_data`."""
        around = {"layer": "pad", "sides": [2, 2, 2, 2]}
        conv = {**linear(self.conv), "layer": "convolution", "stride": 1}
        return chain(around, conv, {"layer": "max_pool", "size": 2}, self.norm.along(1, 1, 1))


class ImageEncoder(nn.Module):
    """Convolutions that halve an image until its shorter side has 3 to 5 pixels, or four times."""

    def __init__(self, leaf: Leaf, depth: int, generator: torch.Generator) -> None:
        super().__init__()
        stages = stages_of(leaf.resolution)
        sizes = [leaf.channels, *(depth * m for m in MULTIPLES[:stages])]
        self.layers = nn.ModuleList(Halving(a, b, generator) for a, b in pairwise(sizes))
        self.padding = _padding(leaf.resolution, stages)
        height, width = (n // 2**stages for n in padded(leaf.resolution, stages))
        self.output_size = sizes[-1] * height * width

    def forward(self, image: Tensor) -> Tensor:
        """Return (B, output_size) of (B, C, H, W) in [0, 1]."""
        x = (image - 0.5).contiguous(memory_format=torch.channels_last)
        if any(self.padding):
            x = functional.pad(x, self.padding)
        for layer in self.layers:
            x = layer(x)
        return x.flatten(1)

    def layer_data(self) -> LayerData:
        """Describe the layers; see :mod:`rlox.nn.layer_data`."""
        half, one = np.float32(0.5), np.float32(1)
        _, right, _, bottom = self.padding
        return chain(
            {"layer": "normalize", "mean": half, "std": one},
            {"layer": "pad", "sides": [0, bottom, 0, right]},
            *(layer_data(layer) for layer in self.layers),
            {"layer": "flatten", "divide_by": 1.0},
        )


def padded(resolution: tuple[int, int], stages: int) -> tuple[int, int]:
    """Return height and width, rounded up to what can be halved so often."""
    unit = 2**stages
    height, width = (-(-n // unit) * unit for n in resolution)
    return height, width


def _padding(resolution: tuple[int, int], stages: int) -> tuple[int, int, int, int]:
    height, width = padded(resolution, stages)
    return 0, width - resolution[1], 0, height - resolution[0]


class Encoder(nn.Module):
    """From observations to tokens.

    Args:
        leaves: what is seen.
        units: width of the hidden layers of vectors.
        layers: their number.
        depth: unit of channels.
        generator: source of the weights.
    """

    def __init__(
        self,
        leaves: Sequence[Leaf],
        units: int,
        layers: int,
        depth: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.leaves = tuple(leaves)
        images = [ImageEncoder(leaf, depth, generator) for leaf in leaves if leaf.kind == "image"]
        self.images = nn.ModuleList(images)
        width = sum(leaf.width for leaf in leaves if leaf.kind != "image")
        self.vectors = mlp(width, units, layers, generator) if width else None
        image_sizes = sum(part.output_size for part in images)
        self.output_size = image_sizes + (units if width else 0)

    def forward(self, obs: Any) -> Tensor:
        """Return tokens (B, output_size) of observations (B, *shape) by leaf name."""
        named, parts = by_name(obs), []
        if self.vectors is not None:
            rows = [leaf.rows(named[leaf.name]) for leaf in self.leaves if leaf.kind != "image"]
            parts.append(self.vectors(torch.cat(rows, -1)))
        images = (leaf for leaf in self.leaves if leaf.kind == "image")
        for leaf, encode in zip(images, self.images, strict=True):
            parts.append(encode(leaf.image(named[leaf.name])))
        return torch.cat(parts, -1)

    def layer_data(self) -> LayerData:
        """Describe the encoder; see :mod:`rlox.nn.layer_data`."""
        images = [[leaf] for leaf in self.leaves if leaf.kind == "image"]
        parts = list(zip(images, self.images, strict=True))
        if self.vectors is not None:
            vectors = [leaf for leaf in self.leaves if leaf.kind != "image"]
            parts.insert(0, (vectors, self.vectors))
        layers = [chain(_leaf_data(leaves), layer_data(part)) for leaves, part in parts]
        return {"layer": "beside", "layers": layers}


def _leaf_data(leaves: Sequence[Leaf]) -> LayerData:
    """Describe inputs side by side; an observation that is an array is the leaf without a name."""
    if leaves[0].name == "":
        return leaves[0].layer_data()
    return {"layer": "join", "leaves": [[leaf.name, leaf.layer_data()] for leaf in leaves]}
