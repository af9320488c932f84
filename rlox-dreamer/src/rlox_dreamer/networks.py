"""The networks of DreamerV3 in one module, which one optimiser moves."""

from __future__ import annotations

from typing import Any

import torch
from rlox.nn.layer_data import LayerData, chain
from rlox.protocols import VecEnv
from rlox.spaces.rows import map_leaves
from torch import Tensor, nn

from rlox_dreamer.configs import DreamerV3Config
from rlox_dreamer.decoder import Decoder
from rlox_dreamer.encoder import Encoder
from rlox_dreamer.heads import ActionCodec, PolicyHead, TwoHotHead
from rlox_dreamer.layers import mlp
from rlox_dreamer.leaves import observation_leaves
from rlox_dreamer.rssm import RSSM

__all__ = ["Networks"]


class Networks(nn.Module):
    """World model, actor and critic; one optimiser moves them all.

    Args:
        env: whose observations and actions they fit.
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
        self.kl_scales = (
            cfg.kl_balance if cfg.dyn_scale is None else cfg.dyn_scale,
            1 - cfg.kl_balance if cfg.rep_scale is None else cfg.rep_scale,
        )

    def layer_data(self) -> LayerData:
        """Describe what acts: encoder, dynamics and policy; see :mod:`rlox.nn.layer_data`."""
        step = self.rssm.layer_data(self.actions.size, self.policy.layer_data())
        return chain(self.encoder.layer_data(), step, self.actions.layer_data())

    def encode(self, obs: Any) -> Tensor:
        """Return tokens (T, B, token_size) of observations (T, B, *shape) by leaf name."""
        steps, count = (
            next(iter(obs.values())).shape[:2] if isinstance(obs, dict) else obs.shape[:2]
        )
        tokens: Tensor = self.encoder(map_leaves(lambda leaf: leaf.flatten(0, 1), obs))
        return tokens.view(steps, count, -1)

    def reconstruction_loss(self, features: Tensor, obs: Any) -> Tensor:
        """Return the decoder's loss (T, B) for features (T, B, F)."""
        flat = map_leaves(lambda leaf: leaf.flatten(0, 1), obs)
        return self.decoder.loss(features.flatten(0, 1), flat).view(features.shape[:2])
