"""Observation encoders: features from any observation space.

| leaf of the observation space | encoder |
| --- | --- |
| ``Box`` of uint8 with 2 or 3 dimensions | :class:`ConvolutionalEncoder`: an image |
| any other ``Box``, ``MultiBinary`` | :class:`VectorEncoder`: its numbers |
| ``Discrete``, ``MultiDiscrete`` | :class:`OneHotEncoder` |
| ``Dict``, ``Tuple`` | :class:`CombinedEncoder`: the leaves' features side by side |

uint8 stays uint8 up to here and is divided by the space's upper bound. The place of an image's
channels is decided by :func:`rlox.spaces.channels_first`; two dimensions are one channel.

Images of at least 36×36 pixels get the network of Mnih et al. 2015, "Human-level control through
deep reinforcement learning", methods; smaller ones that of Young and Tian 2019, "MinAtar", sec. 3.
The residual network of Espeholt et al. 2018, "IMPALA", fig. 3, is optional.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # the field's name for it
from gymnasium import spaces
from torch import Tensor, nn

from rlox.errors import ConfigError, SpaceError
from rlox.nn.layer_data import LayerData, activation, array, chain, layer_data, linear
from rlox.nn.mlp import MLP, orthogonal
from rlox.spaces.rows import channels_first, is_nested, leaf_spaces

Space = gymnasium.Space[Any]

EncoderKind = Literal["auto", "mlp", "cnn"]
"""Features of a ``Box``: by the table above, always flattened, or as an image if it has 2 or 3
dimensions."""

NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512
NATURE_PIXELS = 36
"""Minimum height and width that leave one pixel after these convolutions."""

MINATAR = ((16, 3, 1),), 128
IMPALA = ((16, 3, 1), (32, 3, 1), (32, 3, 1)), 256
CONVOLUTIONS = {"impala": IMPALA, "minatar": MINATAR, "nature": NATURE}
"""Filters, their size and stride, and units of the layer after them, by name."""
MOST_USUAL_CHANNELS = 4
"""With more channels, an image that is not square may have another layout."""
MINATAR_PIXELS = 3


def make_encoder(
    observation_space: Space,
    *,
    kind: EncoderKind = "auto",
    conv: str | Sequence[tuple[int, int, int]] = "auto",
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return a module that maps (B, *shape) observations to (B, output_size) float32 features.

    It has the attribute ``output_size``. Observations of a nested space are a dict of (B, *shape)
    tensors by leaf name; see :mod:`rlox.spaces.rows`.

    Args:
        observation_space: of one env.
        kind: see :data:`EncoderKind`.
        conv: a name in :data:`CONVOLUTIONS`, or filters for a :class:`ConvolutionalEncoder` with
            512 units; ``"auto"``: by the size of the image.
        generator: source of the weights; ``None`` uses torch's global one.

    Raises:
        SpaceError: a leaf has no encoder, convolutions are requested without an image, or an image
            is too small for them.
    """
    leaves = leaf_spaces(observation_space)
    asked = "the 'cnn' network" if conv == "auto" else f"conv={conv!r}"
    wanted = kind == "cnn" or conv != "auto"
    if wanted and not has_image(observation_space, kind):
        raise SpaceError(
            f"{asked} needs a Box with 2 or 3 dimensions of at least {MINATAR_PIXELS} pixels, and "
            f"network='auto' one of uint8, got {observation_space}; leave it out"
        )
    made = {name: _make_leaf(leaf, kind, conv, generator) for name, leaf in leaves.items()}
    return CombinedEncoder(made) if is_nested(observation_space) else made[""]


def has_image(space: Space, kind: EncoderKind) -> bool:
    """Return whether a leaf of an observation space is encoded by convolutions."""
    return any(_is_image(leaf, kind) for leaf in leaf_spaces(space).values())


def set_compute_dtype(network: nn.Module, compute_dtype: str) -> None:
    """Set the precision of all convolutions and hidden layers of a network.

    Parameters, gradients, features and the layers of outputs stay float32.

    Args:
        network: has them as parts.
        compute_dtype: ``"float32"``, or ``"bfloat16"`` with products summed in float32.

    Raises:
        ConfigError: the network has none, and a precision other than float32 is requested.
    """
    parts = [part for part in network.modules() if isinstance(part, (ConvolutionalEncoder, MLP))]
    if compute_dtype != "float32" and not parts:
        raise ConfigError(
            f"compute_dtype='{compute_dtype}' is of rlox's convolutions and hidden layers, and the "
            "network has none; leave it out"
        )
    for part in parts:
        part.compute_dtype = getattr(torch, compute_dtype)


def _make_leaf(
    space: Space, kind: EncoderKind, conv: Any, generator: torch.Generator | None
) -> nn.Module:
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return OneHotEncoder(space)
    if _is_image(space, kind):
        if conv == "auto":
            conv = "nature" if min(_image_shape(space)[:2]) >= NATURE_PIXELS else "minatar"
        filters, units = CONVOLUTIONS[conv] if isinstance(conv, str) else (conv, 512)
        residual = conv == "impala"
        return ConvolutionalEncoder(space, filters, units, residual=residual, generator=generator)
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        return VectorEncoder(space)
    raise SpaceError(
        "observations must be Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of "
        f"these, got {space}; wrap the env with gymnasium.wrappers.TransformObservation or pass "
        "a policy of your own"
    )


def _is_image(space: Space, kind: EncoderKind) -> bool:
    if kind == "mlp" or not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3):
        return False
    return (space.dtype == np.uint8 or kind == "cnn") and min(
        _image_shape(space)[:2]
    ) >= MINATAR_PIXELS


def _image_shape(space: Space) -> tuple[int, int, int]:
    """Return height, width and channels."""
    shape = space.shape or ()
    first, second, third = (*shape, 1)[:3]
    return (second, third, first) if channels_first(space) else (first, second, third)


def _scale(space: Space) -> float:
    """Return the divisor of a leaf's numbers: the upper bound if they are stored as uint8."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return 1.0
    return float(max(int(space.high.max()), 1))


class VectorEncoder(nn.Module):
    """The unchanged numbers of an array; uint8 is divided by its upper bound.

    Args:
        space: a ``Box`` of any shape or a ``MultiBinary``.
    """

    def __init__(self, space: Space) -> None:
        super().__init__()
        self.output_size = int(np.prod(space.shape or ()))
        self._scale = _scale(space)
        self.changes_nothing = self._scale == 1.0 and len(space.shape or ()) == 1
        """Whether the features are the observations in float32."""

    def forward(self, obs: Tensor) -> Tensor:
        """Return features (B, output_size) of observations (B, *shape)."""
        features = obs.reshape(len(obs), -1).float()
        return features if self._scale == 1.0 else features / self._scale

    def layer_data(self) -> LayerData:
        """Describe the encoder; see :mod:`rlox.nn.layer_data`."""
        return {"layer": "flatten", "divide_by": self._scale}


class OneHotEncoder(nn.Module):
    """A one-hot vector for each whole number.

    Args:
        space: a ``Discrete`` or a ``MultiDiscrete``.
    """

    _first: Tensor

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        super().__init__()
        sizes = np.array([space.n] if isinstance(space, spaces.Discrete) else space.nvec).flatten()
        self.output_size = int(sizes.sum())
        # value v of column k has the index v - start_k + the sizes of the columns before k
        first = np.cumsum(sizes) - sizes - np.array(space.start).flatten()
        self.register_buffer("_first", torch.from_numpy(first.astype(np.int64)), persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        """Return features (B, output_size) of int64 observations (B,) or (B, *shape)."""
        places = obs.reshape(len(obs), -1).long() + self._first
        features = torch.zeros(len(obs), self.output_size, device=obs.device)
        return features.scatter_(1, places, 1.0)

    def layer_data(self) -> LayerData:
        """Describe the encoder; see :mod:`rlox.nn.layer_data`."""
        return {"layer": "one_hot", "first": array(self._first), "size": self.output_size}


class ConvolutionalEncoder(nn.Module):
    """Convolutions and one layer, ReLU after each; weights orthogonal with gain √2, biases 0.

    On a CPU images are computed channels last, since the kernels for that are faster.

    Args:
        space: a ``Box`` with 2 or 3 dimensions.
        filters: of each convolution: number of filters, their size and their stride in pixels.
        units: of the layer.
        residual: whether each convolution begins a stage of IMPALA: it keeps the size of images
            and is followed by max-pooling and two residual blocks.
        generator: source of the weights; ``None`` uses torch's global one.

    Source:
        Huang et al. 2022, "The 37 implementation details of PPO", Atari details.
    """

    def __init__(
        self,
        space: Space,
        filters: Sequence[tuple[int, int, int]],
        units: int,
        *,
        residual: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        height, width, channels = _image_shape(space)
        self._channels_first = channels_first(space)
        guessed = getattr(space, "guessed_frames", not hasattr(space, "channels_first"))
        if height != width and channels > guessed * MOST_USUAL_CHANNELS and guessed:
            warnings.warn(
                f"images of shape {space.shape} are read with {channels} channels, which is a "
                "guess; say it by an attribute of the env's space, channels_first = "
                f"{self._channels_first}, or {not self._channels_first} if it is wrong",
                stacklevel=2,
            )
        self._scale = _scale(space)
        self.convolutions, self.blocks = nn.ModuleList(), nn.ModuleList()

        def add(to: nn.ModuleList, *sizes: int) -> None:
            to.append(orthogonal(nn.Conv2d, *sizes, generator=generator))

        for n_out, size, stride in filters:
            edge = size // 2 if residual else 0
            add(self.convolutions, channels, n_out, size, stride, edge)
            channels = n_out
            height, width = ((n + 2 * edge - size) // stride + 1 for n in (height, width))
            if residual:
                height, width = (height + 1) // 2, (width + 1) // 2
                for _ in range(4):
                    add(self.blocks, n_out, n_out, 3, 1, 1)
        if min(height, width) < 1:
            raise SpaceError(f"images of shape {space.shape} are too small for {filters}")
        self.layer = orthogonal(nn.Linear, channels * height * width, units, generator=generator)
        self.output_size = units
        self.compute_dtype = torch.float32
        """Dtype of all computations between pixels and features, which are float32; see
        :func:`set_compute_dtype`."""

    def forward(self, obs: Tensor) -> Tensor:
        """Return features (B, units) of images (B, *shape)."""
        if obs.dim() == 3:
            obs = obs.unsqueeze(1)
        elif not self._channels_first:
            obs = obs.permute(0, 3, 1, 2)
        if obs.device.type == "cpu":
            obs = obs.contiguous(memory_format=torch.channels_last)
        features = obs.to(self.compute_dtype)
        convolutions: list[Any] = [*self.convolutions]
        first = convolutions[0]
        reduced = self.compute_dtype != torch.float32
        with torch.autocast(obs.device.type, torch.bfloat16, enabled=reduced):
            # divides the few weights instead of the many pixels
            weight = first.weight / self._scale
            features = F.conv2d(features, weight, first.bias, first.stride, first.padding)
            for i in range(len(convolutions)):
                features = convolutions[i](features) if i else features
                features = self._behind(i, features)
            features = F.relu(self.layer(features.flatten(1)), inplace=True)
        return features.float()

    def _behind(self, i: int, features: Tensor) -> Tensor:
        """Apply the layers after a convolution to its outputs."""
        if self.blocks:
            features = F.max_pool2d(features, 3, 2, 1)
            blocks: list[Any] = [*self.blocks[4 * i : 4 * i + 4]]
            for first, second in (blocks[:2], blocks[2:]):
                features = features + second(F.relu(first(F.relu(features))))
            if i < len(self.convolutions) - 1:
                return features
        return F.relu(features, inplace=True)

    def layer_data(self) -> LayerData:
        """Describe the encoder; see :mod:`rlox.nn.layer_data`."""
        layers: list[LayerData] = [
            {"layer": "image", "channels_first": self._channels_first, "divide_by": self._scale}
        ]
        relu = activation("relu")
        for i, convolution in enumerate(self.convolutions):
            layers.append(_convolution(convolution))
            if not self.blocks:
                layers.append(relu)
                continue
            layers.append({"layer": "max_pool", "size": 3, "stride": 2, "padding": 1})
            blocks = [_convolution(each) for each in self.blocks[4 * i : 4 * i + 4]]
            for first, second in (blocks[:2], blocks[2:]):
                inner = chain(relu, first, relu, second)
                layers.append({"layer": "residual", "inner": inner})
        layers += [relu] if self.blocks else []
        flat = {"layer": "flatten", "divide_by": 1.0}
        return chain(*layers, flat, linear(self.layer), activation("relu"))


def _convolution(layer: Any) -> LayerData:
    """Describe a convolution with its zero padding."""
    own = {**linear(layer), "layer": "convolution", "stride": layer.stride[0]}
    sides = [layer.padding[0]] * 4
    return chain({"layer": "pad", "sides": sides}, own) if any(sides) else own


class CombinedEncoder(nn.Module):
    """One encoder for each leaf of a nested space, their features side by side.

    Args:
        encoders: by leaf name.
    """

    def __init__(self, encoders: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.names = list(encoders)
        # a list, because a leaf's name may not be a valid module name
        self.encoders = nn.ModuleList(encoders.values())
        sizes: list[Any] = [encoder.output_size for encoder in encoders.values()]
        self.output_size = sum(sizes)
        self.joins = all(getattr(each, "changes_nothing", False) for each in encoders.values())
        """Whether the features are the leaves in float32, side by side."""

    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        """Return features (B, output_size) of leaves (B, *shape) by name."""
        pairs = zip(self.names, self.encoders, strict=True)
        return torch.cat([encoder(obs[name]) for name, encoder in pairs], -1)

    def layer_data(self) -> LayerData:
        """Describe the encoders; see :mod:`rlox.nn.layer_data`."""
        pairs = zip(self.names, self.encoders, strict=True)
        return {"layer": "join", "leaves": [[name, layer_data(each)] for name, each in pairs]}
