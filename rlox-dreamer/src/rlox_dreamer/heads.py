"""Heads of DreamerV3: two-hot numbers, the continue flag, and the policy."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from rlox.errors import SpaceError
from rlox.nn.layer_data import LayerData, activation, array, chain, layer_data, mode
from rlox.spaces.rows import ActionRows
from torch import Tensor, nn
from torch.nn import functional

from rlox_dreamer.layers import at_least_float32, mlp
from rlox_dreamer.losses import (
    draw_one_hot,
    log_of,
    mixed_probs,
    symexp_bins,
    two_hot_loss,
    two_hot_mean,
)

__all__ = ["ActionCodec", "PolicyHead", "TwoHotHead", "continue_loss"]

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

STD_BOUNDS = (0.1, 1.0)
"""Least and largest deviation of a continuous policy."""


class TwoHotHead(nn.Module):
    """Predicts a number as the mean of symexp-spaced bins; at first exactly 0.

    Args:
        features: size of the inputs.
        units: width of the hidden layers.
        layers: their number.
        bins: number of bins K.
        generator: source of the weights.
    """

    bins: Tensor

    def __init__(
        self, features: int, units: int, layers: int, bins: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.net = mlp(features, units, layers, generator, outputs=bins, scale=0.0)
        self.register_buffer("bins", symexp_bins(bins), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return log-probabilities (..., K) of the bins."""
        return functional.log_softmax(at_least_float32(self.net(features)), -1)

    def mean(self, log_probs: Tensor) -> Tensor:
        """Return the predicted numbers (...), without gradient."""
        return two_hot_mean(log_probs.detach().exp(), self.bins)

    @torch.no_grad()
    def predict(self, features: Tensor) -> Tensor:
        """Return the predicted numbers (...) for features (..., F), without gradient."""
        return two_hot_mean(functional.softmax(at_least_float32(self.net(features)), -1), self.bins)

    def loss(self, log_probs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy (...) to numbers (...)."""
        return two_hot_loss(log_probs, targets.detach(), self.bins)


def continue_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy (...) of logits to probabilities in [0, 1]."""
    return functional.binary_cross_entropy_with_logits(logits.float(), targets, reduction="none")


class ActionCodec:
    """Actions as the model sees them: one-hot, or a box's numbers in [-1, 1].

    Args:
        space: of one env's action.

    Raises:
        SpaceError: a box is not bounded, or a leaf is of another kind.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.space, self.rows = space, ActionRows(space)
        if len(self.rows.leaves) > 1:
            raise SpaceError(
                f"actions must be Discrete, MultiDiscrete, MultiBinary or a Box, got {space}; join "
                "them with gymnasium.wrappers.TransformAction"
            )
        leaf = self.rows.leaves[0]
        self.sizes = list(leaf.sizes)
        """Choices of each discrete number; empty for a box."""
        self.size = sum(leaf.sizes) if leaf.sizes else leaf.columns
        """Numbers A of an action."""
        self.columns = leaf.columns
        self._flat = isinstance(space, spaces.Discrete)
        if not self.sizes:
            self._bounds(leaf.space)

    def _bounds(self, space: Any) -> None:
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise SpaceError(
                f"continuous actions must be bounded, got {space}; bound them with "
                "gymnasium.wrappers.TransformAction"
            )
        low, high = (
            torch.from_numpy(np.asarray(b, np.float32).ravel()) for b in (space.low, space.high)
        )
        self._center, self._half_range = (low + high) / 2, (high - low) / 2

    def to_rows(self, actions: Tensor) -> Tensor:
        """Return action rows, see :mod:`rlox.spaces.rows`, of actions (B, A)."""
        actions = actions.detach().cpu()
        if not self.sizes:
            return self._center + self._half_range * actions.clamp(-1, 1)
        columns = torch.stack(
            [part.argmax(-1) for part in torch.split(actions, self.sizes, -1)], -1
        )
        return columns[:, 0] if self._flat else columns

    def layer_data(self) -> LayerData:
        """Describe :meth:`to_rows`; see :mod:`rlox.nn.layer_data`."""
        if not self.sizes:
            scale, shift = (array(each.double()) for each in (self._half_range, self._center))
            affine = {"layer": "affine", "scale": scale, "shift": shift}
            return chain(affine, mode(self.space))
        parts = [{"kind": "choices", "sizes": self.sizes}]
        return {"layer": "mode", "parts": parts, "plain": self._flat}


class PolicyHead(nn.Module):
    """Actions for features: categoricals with a uniform share, or bounded normals.

    Args:
        actions: of the env.
        features: size of the inputs.
        units: width of the hidden layers.
        layers: their number.
        mix: share of the uniform distribution in categoricals.
        generator: source of the weights.
    """

    def __init__(
        self,
        actions: ActionCodec,
        features: int,
        units: int,
        layers: int,
        mix: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.sizes, self.size, self.mix = actions.sizes, actions.size, mix
        outputs = actions.size * (1 if actions.sizes else 2)
        self.net = mlp(features, units, layers, generator, outputs=outputs, scale=0.01)
        self.noise_size = len(self.sizes) or actions.size

    def forward(self, features: Tensor) -> Tensor:
        """Return parameters of the distribution, (..., outputs)."""
        return at_least_float32(self.net(features))

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Return what :meth:`sample` draws with, (*shape, noise_size)."""
        draw = torch.rand if self.sizes else torch.randn
        return draw((*shape, self.noise_size), generator=generator)

    def _probs(self, parameters: Tensor) -> list[Tensor]:
        return [mixed_probs(part, self.mix) for part in torch.split(parameters, self.sizes, -1)]

    def _normal(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = parameters.chunk(2, -1)
        low, high = STD_BOUNDS
        return torch.tanh(mean), (high - low) * torch.sigmoid(std + 2.0) + low

    @torch.no_grad()
    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Return actions (..., A)."""
        if not self.sizes:
            mean, std = self._normal(parameters)
            return mean + std * noise
        parts = zip(self._probs(parameters), noise.unbind(-1), strict=True)
        return torch.cat([draw_one_hot(probs, u) for probs, u in parts], -1)

    @torch.no_grad()
    def mode(self, parameters: Tensor) -> Tensor:
        """Return the most probable actions (..., A)."""
        if not self.sizes:
            return self._normal(parameters)[0]
        return torch.cat(
            [functional.one_hot(part.argmax(-1), part.shape[-1]).to(part.dtype)
             for part in torch.split(parameters, self.sizes, -1)], -1,
        )  # fmt: skip

    def layer_data(self) -> LayerData:
        """Describe :meth:`forward` and :meth:`mode`; see :mod:`rlox.nn.layer_data`."""
        if not self.sizes:
            return chain(layer_data(self.net), {"layer": "first_half"}, activation("tanh"))
        return chain(layer_data(self.net), {"layer": "most_probable", "sizes": self.sizes})

    def log_prob_and_entropy(self, parameters: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return log π(a|s) and the entropy in nats, each (...).

        Args:
            parameters: (..., outputs).
            actions: (..., A) as :meth:`sample` returned them.
        """
        if not self.sizes:
            mean, std = self._normal(parameters)
            errors = (actions - mean) / std
            log_probs = -0.5 * errors.square() - std.log() - HALF_LOG_2PI
            return log_probs.sum(-1), (std.log() + HALF_LOG_2PI + 0.5).sum(-1)
        log_probs = entropy = torch.zeros((), device=parameters.device)
        for probs, one_hot in zip(
            self._probs(parameters), torch.split(actions, self.sizes, -1), strict=True
        ):
            logs = log_of(probs)
            log_probs = log_probs + (logs * one_hot).sum(-1)
            entropy = entropy - (probs * logs).sum(-1)
        return log_probs, entropy
