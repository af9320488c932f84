"""Leaves of observations, and the encoder and decoder of vectors, classes and images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from rlox.errors import ConfigError, SpaceError, suggest
from rlox.nn.layer_data import LayerData, activation, chain, layer_data, linear
from rlox.spaces.rows import channels_first, leaf_spaces
from torch import Tensor, nn
from torch.nn import functional

from rlox_dreamer.layers import NormSilu, dense, mlp, truncated_normal_
from rlox_dreamer.losses import symlog

SMALLEST = 16
"""Least pixels of an image's shorter side, which convolutions halve twice."""

MULTIPLES = (2, 3, 4, 4)
"""Channels of the convolutions, in units of ``depth``."""


@dataclass(frozen=True)
class Leaf:
    """One array of an observation."""

    name: str
    kind: Literal["vector", "classes", "image"]
    shape: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    """Number of classes of each entry of a ``"classes"`` leaf."""
    first: int = 0
    """Number of a ``Discrete`` space that is class 0."""
    channels_first: bool = False
    """Of an image."""

    @property
    def width(self) -> int:
        """Number of inputs: a vector's entries, or one per class."""
        return sum(self.sizes) if self.sizes else math.prod(self.shape)

    def image(self, pixels: Tensor) -> Tensor:
        """Return an image leaf (B, *shape) as (B, C, H, W) in [0, 1]."""
        pixels = pixels.float() / 255
        if len(self.shape) == 2:
            return pixels.unsqueeze(1)
        return pixels if self.channels_first else pixels.permute(0, 3, 1, 2)

    @property
    def channels(self) -> int:
        """Channels of an image."""
        if len(self.shape) == 2:
            return 1
        return self.shape[0] if self.channels_first else self.shape[2]

    @property
    def resolution(self) -> tuple[int, int]:
        """Height and width of an image."""
        if not self.channels_first:
            return self.shape[0], self.shape[1]
        return self.shape[1], self.shape[2]

    def rows(self, values: Tensor) -> Tensor:
        """Return inputs (B, width): symlog of a vector leaf, or one-hot classes."""
        if self.kind == "vector":
            return symlog(values.float().flatten(1))
        return torch.cat(self._one_hots(values), -1)

    def classes(self, values: Tensor) -> Tensor:
        """Return the class of each entry, (B, n)."""
        return values.long().reshape(len(values), -1) - self.first

    def layer_data(self) -> LayerData:
        """Describe :meth:`image` or :meth:`rows`; see :mod:`rlox.nn.layer_data`."""
        if self.kind == "image":
            return {"layer": "image", "channels_first": self.channels_first, "divide_by": 255.0}
        if self.kind == "vector":
            return chain({"layer": "flatten", "divide_by": 1.0}, activation("symlog"))
        places = np.cumsum(self.sizes) - self.sizes - self.first
        return {"layer": "one_hot", "first": places, "size": self.width}

    def _one_hots(self, values: Tensor) -> list[Tensor]:
        columns = self.classes(values).unbind(1)
        return [functional.one_hot(c, n).float() for c, n in zip(columns, self.sizes, strict=True)]


def observation_leaves(
    space: gymnasium.Space[Any], keys: Sequence[str] | None, what: str
) -> list[Leaf]:
    """Return the selected leaves of an observation space.

    Args:
        space: of one env.
        keys: names of leaves; ``None``: all.
        what: the option behind ``keys``, for errors.

    Raises:
        ConfigError: a name is not a leaf's, or no leaf is selected.
        SpaceError: an image is too small.
    """
    leaves = leaf_spaces(space)
    for key in keys or ():
        if key not in leaves:
            raise ConfigError(
                f"{what}: the observations have no leaf '{key}'{suggest(key, leaves)}; they have "
                f"{sorted(leaves)}"
            )
    taken = [_leaf(name, leaf) for name, leaf in leaves.items() if keys is None or name in keys]
    if not taken:
        raise ConfigError(
            f"{what} must name at least one of {sorted(leaves)}, got {list(keys or ())}"
        )
    return taken


def _leaf(name: str, space: gymnasium.Space[Any]) -> Leaf:
    shape = tuple(space.shape or ())
    if isinstance(space, spaces.Discrete):
        # stored observations keep the env's own numbers
        return Leaf(name, "classes", shape, (int(space.n),), int(space.start))
    if isinstance(space, spaces.MultiDiscrete) and not np.any(space.start):
        return Leaf(name, "classes", shape, tuple(space.nvec.flatten().tolist()))
    if space.dtype == np.uint8 and len(shape) >= 2:
        leaf = Leaf(name, "image", shape, channels_first=channels_first(space))
        if len(shape) > 3 or min(leaf.resolution) < SMALLEST:
            raise SpaceError(
                f"images must have at least {SMALLEST} x {SMALLEST} pixels, got shape {shape}"
                + (f" of '{name}'" if name else "")
                + "; enlarge them with gymnasium.wrappers.ResizeObservation, or make them float32"
            )
        return leaf
    return Leaf(name, "vector", shape)


def by_name(obs: Any) -> Mapping[str, Any]:
    """Return observations by leaf name; a single array is the leaf ``""``."""
    return obs if isinstance(obs, Mapping) else {"": obs}


def stages_of(resolution: tuple[int, int]) -> int:
    """Return the number of halvings: until the shorter side has 3 pixels, at most four."""
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
        """Return (B, outputs, H / 2, W / 2) for (B, inputs, H, W)."""
        x = functional.max_pool2d(self.conv(x), 2)
        normed: Tensor = self.norm(x.permute(0, 2, 3, 1))
        return normed.permute(0, 3, 1, 2)

    def layer_data(self) -> LayerData:
        """Describe the layer; see :mod:`rlox.nn.layer_data`."""
        around = {"layer": "pad", "sides": [2, 2, 2, 2]}
        conv = {**linear(self.conv), "layer": "convolution", "stride": 1}
        return chain(around, conv, {"layer": "max_pool", "size": 2}, self.norm.along(1, 1, 1))


class ImageEncoder(nn.Module):
    """Convolutions that halve an image to 3 to 5 pixels of its shorter side, at most four times."""

    def __init__(self, leaf: Leaf, depth: int, generator: torch.Generator) -> None:
        super().__init__()
        stages = stages_of(leaf.resolution)
        sizes = [leaf.channels, *(depth * m for m in MULTIPLES[:stages])]
        self.layers = nn.ModuleList(Halving(a, b, generator) for a, b in pairwise(sizes))
        height, width = padded(leaf.resolution, stages)
        self.padding = (0, width - leaf.resolution[1], 0, height - leaf.resolution[0])
        self.output_size = sizes[-1] * height * width // 4**stages

    def forward(self, image: Tensor) -> Tensor:
        """Return (B, output_size) for (B, C, H, W) in [0, 1]."""
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
    """Return height and width, rounded up to multiples of 2^``stages``."""
    unit = 2**stages
    height, width = (-(-n // unit) * unit for n in resolution)
    return height, width


class Encoder(nn.Module):
    """Encoder of observations as tokens.

    Args:
        leaves: the encoded leaves.
        units: width of the hidden layers of vectors.
        layers: number of these layers.
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
        """Return tokens (B, output_size) for observations (B, *shape) by leaf name."""
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
    """Describe joined inputs; an observation of a single array is the leaf ``""``."""
    if leaves[0].name == "":
        return leaves[0].layer_data()
    return {"layer": "join", "leaves": [[leaf.name, leaf.layer_data()] for leaf in leaves]}


def doubled_convolution(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Return a 5x5 convolution of an image doubled by nearest neighbours.

    Copies of one pixel under the kernel need only one product with the sum of their weights. So
    each of a pixel's four copies has its own 3x3 convolution of the original image.

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
    """Return (2, ..., 3, ...) weights for the first and the second copy of a pixel."""
    a, b, c, d, e = weight.unbind(axis)
    return torch.stack([torch.stack([a + b, c + d, e], axis), torch.stack([a, b + c, d + e], axis)])


class Doubling(nn.Module):
    """Nearest-neighbour doubling, a 5x5 convolution, RMSNorm over the channels and SiLU."""

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.conv = convolution(inputs, outputs, generator)
        self.norm = NormSilu(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, outputs, 2 H, 2 W) for (B, inputs, H, W)."""
        normed: Tensor = self.norm(doubled_convolution(x, self.conv))
        return normed.permute(0, 3, 1, 2)


class ImageDecoder(nn.Module):
    """Nearest-neighbour doubling and convolutions, up to an image behind a sigmoid."""

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
        """Return (B, C, H, W) in [0, 1] for (B, features)."""
        channels, height, width = self.first
        x = self.start(features).view(-1, height, width, channels)
        x = self.start_norm(x).permute(0, 3, 1, 2)
        for layer in self.layers:
            x = layer(x)
        rows, columns = self.resolution
        image = torch.sigmoid(doubled_convolution(x, self.last)).permute(0, 3, 1, 2)
        return image[..., :rows, :columns]


class Decoder(nn.Module):
    """Decoder of features as observations, with its loss.

    Args:
        leaves: the reconstructed leaves.
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

        A vector's is its symlog (B, n), the classes' are logits (B, Σ n), an image's (B, C, H, W).
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
        """Return the reconstruction loss (B,), summed over entries, pixels and leaves.

        Squared error for symlog entries and pixels in [0, 1], cross-entropy for classes.

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
