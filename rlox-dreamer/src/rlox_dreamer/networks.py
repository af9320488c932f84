"""The networks of DreamerV3: heads for numbers and actions, and one module of all networks."""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from rlox.errors import SpaceError
from rlox.nn.layer_data import LayerData, activation, chain, layer_data, mode
from rlox.protocols import VecEnv
from rlox.spaces.rows import ActionRows, is_bounded, map_leaves
from torch import Tensor, nn
from torch.nn import functional

from rlox_dreamer.configs import DreamerV3Config
from rlox_dreamer.layers import at_least_float32, mlp
from rlox_dreamer.losses import (
    ReturnScale,
    draw_one_hot,
    log_of,
    mixed_probs,
    symexp_bins,
    two_hot_loss,
    two_hot_mean,
)
from rlox_dreamer.observations import Decoder, Encoder, by_name, observation_leaves
from rlox_dreamer.rssm import RSSM, Latent

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

STD_BOUNDS = (0.1, 1.0)
"""Least and largest deviation of a continuous policy."""


class TwoHotHead(nn.Module):
    """Predicts a number as the mean of symexp-spaced bins; initially exactly 0.

    Args:
        features: size of the inputs.
        units: width of the hidden layers.
        layers: number of hidden layers.
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


class ActionCodec:
    """The model's form of actions: one-hot, or a ``Box`` scaled to [-1, 1].

    Args:
        space: of one env's action.

    Raises:
        SpaceError: a ``Box`` is not bounded, or the space is nested.
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
        """Number of choices of each discrete entry; empty for a ``Box``."""
        self.size = sum(leaf.sizes) if leaf.sizes else leaf.columns
        """Size A of an encoded action."""
        self._flat = isinstance(space, spaces.Discrete)
        if isinstance(leaf.space, spaces.Box):
            low, high = (b.astype(np.float32).ravel() for b in (leaf.space.low, leaf.space.high))
            if not is_bounded(low, high):
                raise SpaceError(
                    f"continuous actions must be bounded, got {space}; bound them with "
                    "gymnasium.wrappers.TransformAction"
                )
            self._center, self._half_range = (low + high) / 2, (high - low) / 2

    def to_env(self, actions: npt.NDArray[np.float32]) -> Any:
        """Return actions (B, A) in the envs' form."""
        if not self.sizes:
            return self.rows.to_env(self._center + self._half_range * actions.clip(-1, 1))
        parts = np.split(actions, np.cumsum(self.sizes)[:-1], -1)
        columns = np.stack([part.argmax(-1) for part in parts], -1)
        return self.rows.to_env(columns[:, 0] if self._flat else columns)

    def layer_data(self) -> LayerData:
        """Describe :meth:`to_env`; see :mod:`rlox.nn.layer_data`."""
        if not self.sizes:
            scale, shift = (each.astype(np.float64) for each in (self._half_range, self._center))
            affine = {"layer": "affine", "scale": scale, "shift": shift}
            return chain(affine, mode(self.space))
        parts = [{"kind": "choices", "sizes": self.sizes}]
        return {"layer": "mode", "parts": parts, "plain": self._flat}


class PolicyHead(nn.Module):
    """Actions for features: categoricals with a uniform share, or normals with bounded means.

    Args:
        actions: codec of the env's actions.
        features: size of the inputs.
        units: width of the hidden layers.
        layers: number of hidden layers.
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
        """Return the random numbers for :meth:`sample`, (*shape, noise_size)."""
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
            actions: (..., A) from :meth:`sample`.
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


class Networks(nn.Module):
    """World model, actor and critic, which one optimiser trains, and a slow copy of the critic.

    Args:
        env: defines observations and actions.
        cfg: sizes.
        generator: source of the weights.
    """

    def __init__(self, env: VecEnv, cfg: DreamerV3Config, generator: torch.Generator) -> None:
        super().__init__()
        space = env.observation_space
        self.actions = ActionCodec(env.action_space)
        seen = observation_leaves(space, cfg.encoder_keys, "encoder_keys")
        rebuilt = observation_leaves(space, cfg.decoder_keys, "decoder_keys")
        features = cfg.deter_dim + cfg.stoch_dim * cfg.stoch_classes
        sizes = (cfg.units, cfg.encoder_layers, cfg.depth, generator)
        self.encoder = Encoder(seen, *sizes)
        self.rssm = RSSM(
            self.actions.size, self.encoder.output_size, deter=cfg.deter_dim, stoch=cfg.stoch_dim,
            classes=cfg.stoch_classes, hidden=cfg.hidden, blocks=cfg.blocks, mix=cfg.unimix,
            generator=generator,
        )  # fmt: skip
        self.decoder = Decoder(rebuilt, features, *sizes)
        self.reward = TwoHotHead(features, cfg.units, 1, cfg.bins, generator)
        self.continuation = mlp(features, cfg.units, 1, generator, outputs=1)
        self.policy = PolicyHead(
            self.actions, features, cfg.units, cfg.head_layers, cfg.policy_unimix, generator
        )
        self.value = TwoHotHead(features, cfg.units, cfg.head_layers, cfg.bins, generator)
        self.slow_value = copy.deepcopy(self.value).requires_grad_(False)
        self.return_scale = ReturnScale()

    def remembered(self, memory: Tensor) -> tuple[Latent, Tensor]:
        """Split memories (N, D + S C + A) into states and actions (N, A)."""
        shape = (self.rssm.stoch, self.rssm.classes)
        sizes = [self.rssm.deter, math.prod(shape), self.actions.size]
        deter, stoch, actions = torch.split(memory, sizes, -1)
        return Latent(deter, stoch.reshape(-1, *shape)), actions

    def layer_data(self) -> LayerData:
        """Describe the acting parts: encoder, dynamics, policy; see :mod:`rlox.nn.layer_data`."""
        step = self.rssm.layer_data(self.actions.size, self.policy.layer_data())
        return chain(self.encoder.layer_data(), step, self.actions.layer_data())

    @torch.no_grad()
    def imagine(
        self, start: Latent, horizon: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Let the policy act in the model, without gradient into it.

        Args:
            start: N states.
            horizon: steps H.
            generator: source of actions and states.

        Returns:
            Features (H + 1, N, F), and the policy's actions there (H + 1, N, A).
        """
        count, device = len(start.deter), start.deter.device
        draws = self.policy.noise((horizon + 1, count), generator).to(device)
        noise = torch.rand((horizon, count, self.rssm.stoch), generator=generator).to(device)
        latent, features, actions = start, [], []
        shares = self.rssm.shares()
        for t in range(horizon + 1):
            features.append(latent.features())
            actions.append(self.policy.sample(self.policy(features[-1]), draws[t]))
            if t < horizon:
                latent = self.rssm.imagine_step(latent, actions[-1], noise[t], shares)
        return torch.stack(features), torch.stack(actions)

    def encode(self, obs: Any) -> Tensor:
        """Return tokens (T, B, token_size) for observations (T, B, *shape) by leaf name."""
        steps, count = next(iter(by_name(obs).values())).shape[:2]
        tokens: Tensor = self.encoder(map_leaves(lambda leaf: leaf.flatten(0, 1), obs))
        return tokens.view(steps, count, -1)

    def reconstruction_loss(self, features: Tensor, obs: Any) -> Tensor:
        """Return the decoder's loss (T, B) for features (T, B, F)."""
        flat = map_leaves(lambda leaf: leaf.flatten(0, 1), obs)
        return self.decoder.loss(features.flatten(0, 1), flat).view(features.shape[:2])
