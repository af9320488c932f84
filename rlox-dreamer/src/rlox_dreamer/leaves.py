"""Leaves of observation spaces: vectors, classes and images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from rlox.errors import ConfigError, SpaceError, suggest
from rlox.nn.layer_data import LayerData, activation, chain
from rlox.spaces.rows import channels_first, leaf_spaces
from torch import Tensor
from torch.nn import functional

from rlox_dreamer.losses import symlog

__all__ = ["Leaf", "by_name", "observation_leaves"]

SMALLEST = 16
"""Pixels of an image's shorter side that convolutions can halve twice."""


@dataclass(frozen=True)
class Leaf:
    """One array of an observation."""

    name: str
    kind: Literal["vector", "classes", "image"]
    shape: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    """Classes of each number of a ``"classes"`` leaf."""
    first: int = 0
    """Number of a ``Discrete`` space that is class 0."""

    @property
    def width(self) -> int:
        """Inputs of a vector or of the one-hots of classes."""
        return sum(self.sizes) if self.sizes else math.prod(self.shape)

    def image(self, pixels: Tensor) -> Tensor:
        """Return (B, C, H, W) in [0, 1] of an image leaf (B, *shape)."""
        pixels = pixels.float() / 255
        if len(self.shape) == 2:
            return pixels.unsqueeze(1)
        return pixels if channels_first(self.shape) else pixels.permute(0, 3, 1, 2)

    @property
    def channels(self) -> int:
        """Channels of an image."""
        if len(self.shape) == 2:
            return 1
        return self.shape[0] if channels_first(self.shape) else self.shape[2]

    @property
    def resolution(self) -> tuple[int, int]:
        """Height and width of an image."""
        if len(self.shape) == 2 or not channels_first(self.shape):
            return self.shape[0], self.shape[1]
        return self.shape[1], self.shape[2]

    def rows(self, values: Tensor) -> Tensor:
        """Return inputs (B, width) of a vector leaf, symlog, or of classes, one-hot."""
        if self.kind == "vector":
            return symlog(values.float().flatten(1))
        return torch.cat(self._one_hots(values), -1)

    def classes(self, values: Tensor) -> Tensor:
        """Return the class of each number, (B, n)."""
        return values.long().reshape(len(values), -1) - self.first

    def layer_data(self) -> LayerData:
        """Describe :meth:`image` or :meth:`rows`; see :mod:`rlox.nn.layer_data`."""
        if self.kind == "image":
            first = len(self.shape) == 3 and channels_first(self.shape)
            return {"layer": "image", "channels_first": first, "divide_by": 255.0}
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
    """Return the leaves of an observation space that are seen.

    Args:
        space: of one env.
        keys: names of leaves; ``None`` takes all.
        what: the option that ``keys`` comes from, for errors.

    Raises:
        ConfigError: there is no leaf of a name, or none is taken.
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
        # observation rows keep the env's own numbers
        return Leaf(name, "classes", shape, (int(space.n),), int(space.start))
    if isinstance(space, spaces.MultiDiscrete) and not np.any(space.start):
        return Leaf(name, "classes", shape, tuple(space.nvec.flatten().tolist()))
    if space.dtype == np.uint8 and len(shape) >= 2:
        leaf = Leaf(name, "image", shape)
        if len(shape) > 3 or min(leaf.resolution) < SMALLEST:
            raise SpaceError(
                f"images must have at least {SMALLEST} x {SMALLEST} pixels, got shape {shape}"
                + (f" of '{name}'" if name else "")
                + "; enlarge them with gymnasium.wrappers.ResizeObservation, or make them float32"
            )
        return leaf
    return Leaf(name, "vector", shape)


def by_name(obs: Any) -> Mapping[str, Tensor]:
    """Return observations by leaf name; an array alone is the leaf without a name."""
    return obs if isinstance(obs, Mapping) else {"": obs}
