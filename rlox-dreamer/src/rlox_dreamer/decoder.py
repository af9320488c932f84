"""The decoder: from features to the loss of reconstructed observations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlox_dreamer.encoder import MULTIPLES, convolution, padded, stages_of
from rlox_dreamer.layers import NormSilu, dense, mlp
from rlox_dreamer.leaves import Leaf, by_name

__all__ = ["Decoder"]


def doubled_convolution(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Return a 5x5 convolution of an image that is doubled by nearest neighbours.

    Of the 25 pixels under the kernel, those that copy one pixel share one product with the sum of
    their weights: each of the four pixels that a pixel becomes has a 3x3 convolution of its own.

    Args:
        x: (B, inputs, H, W).
        conv: 5x5, padded by 2.

    Returns:
        (B, 2 H, 2 W, outputs).
    """
    assert conv.bias is not None
    weight = _of_copies(_of_copies(conv.weight, -2), -1)
    phases = functional.conv2d(x, weight.flatten(0, 2), conv.bias.repeat(4), padding=1)
    height, width = phases.shape[2:]
    pixels = phases.permute(0, 2, 3, 1).reshape(len(x), height, width, 2, 2, conv.out_channels)
    return pixels.permute(0, 1, 4, 2, 3, 5).reshape(len(x), 2 * height, 2 * width, -1)


def _of_copies(weight: Tensor, axis: int) -> Tensor:
    """Return (2, ..., 3, ...) weights of the first and of the second copy of a pixel."""
    a, b, c, d, e = weight.unbind(axis)
    return torch.stack([torch.stack([a + b, c + d, e], axis), torch.stack([a, b + c, d + e], axis)])


class Doubling(nn.Module):
    """Nearest-neighbour doubling, a 5x5 convolution, RMSNorm over the channels and SiLU."""

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.conv = convolution(inputs, outputs, generator)
        self.norm = NormSilu(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, outputs, 2 H, 2 W) of (B, inputs, H, W)."""
        normed: Tensor = self.norm(doubled_convolution(x, self.conv))
        return normed.permute(0, 3, 1, 2)


class ImageDecoder(nn.Module):
    """Nearest-neighbour doubling and convolutions, up to an image of sigmoids."""

    def __init__(self, leaf: Leaf, features: int, depth: int, generator: torch.Generator) -> None:
        super().__init__()
        stages = stages_of(leaf.resolution)
        self.resolution = leaf.resolution
        height, width = (n // 2**stages for n in padded(leaf.resolution, stages))
        sizes = [depth * m for m in MULTIPLES[:stages]][::-1]
        self.first = (sizes[0], height, width)
        self.start = dense(features, math.prod(self.first), generator)
        self.start_norm = NormSilu(sizes[0])
        self.layers = nn.ModuleList(Doubling(a, b, generator) for a, b in pairwise(sizes))
        self.last = convolution(sizes[-1], leaf.channels, generator)

    def forward(self, features: Tensor) -> Tensor:
        """Return (B, C, H, W) in [0, 1] of (B, features)."""
        channels, height, width = self.first
        x = self.start(features).view(-1, height, width, channels)
        x = self.start_norm(x).permute(0, 3, 1, 2)
        for layer in self.layers:
            x = layer(x)
        rows, columns = self.resolution
        image = torch.sigmoid(doubled_convolution(x, self.last)).permute(0, 3, 1, 2)
        return image[..., :rows, :columns]


class Decoder(nn.Module):
    """From features to the loss of reconstructed observations.

    Args:
        leaves: what is reconstructed.
        features: size of the features.
        units: see :class:`Encoder`.
        layers: see there.
        depth: see there.
        generator: source of the weights.
    """

    def __init__(
        self,
        leaves: Sequence[Leaf],
        features: int,
        units: int,
        layers: int,
        depth: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.leaves = tuple(leaves)
        self.images = nn.ModuleList(
            ImageDecoder(leaf, features, depth, generator)
            for leaf in leaves
            if leaf.kind == "image"
        )
        self.widths = [leaf.width for leaf in leaves if leaf.kind != "image"]
        self.vectors = (
            mlp(features, units, layers, generator, outputs=sum(self.widths))
            if self.widths else None
        )  # fmt: skip

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        """Return predictions by leaf name for (B, features).

        Of a vector its symlog (B, n), of classes logits (B, Σ n), of an image (B, C, H, W).
        """
        predicted: dict[str, Tensor] = {}
        if self.vectors is not None:
            names = [leaf.name for leaf in self.leaves if leaf.kind != "image"]
            predicted.update(
                zip(
                    names, torch.split(self.vectors(features).float(), self.widths, -1), strict=True
                )
            )
        images = (leaf for leaf in self.leaves if leaf.kind == "image")
        for leaf, decode in zip(images, self.images, strict=True):
            predicted[leaf.name] = decode(features).float()
        return predicted

    def loss(self, features: Tensor, obs: Any) -> Tensor:
        """Return the reconstruction loss (B,), summed over numbers, pixels and leaves.

        Squared error of symlog numbers and of pixels in [0, 1], cross-entropy of classes.

        Args:
            features: (B, features).
            obs: (B, *shape) by leaf name.
        """
        named, total = by_name(obs), torch.zeros((), device=features.device)
        for name, predicted in self(features).items():
            leaf = next(leaf for leaf in self.leaves if leaf.name == name)
            total = total + _leaf_loss(leaf, predicted, named[name])
        return total


def _leaf_loss(leaf: Leaf, predicted: Tensor, target: Tensor) -> Tensor:
    if leaf.kind == "image":
        return (predicted - leaf.image(target)).square().sum((1, 2, 3))
    if leaf.kind == "vector":
        return (predicted - leaf.rows(target)).square().sum(-1)
    parts = torch.split(predicted, list(leaf.sizes), -1)
    columns = zip(parts, leaf.classes(target).unbind(1), strict=True)
    losses = [functional.cross_entropy(p, c, reduction="none") for p, c in columns]
    return torch.stack(losses).sum(0)
