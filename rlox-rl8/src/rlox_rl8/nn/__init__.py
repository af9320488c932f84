"""Modules and functions for models of batched envs."""

from rlox_rl8.nn import functional, modules
from rlox_rl8.nn.functional import generalized_advantage_estimate, ppo_losses
from rlox_rl8.nn.modules import (
    MLP,
    CrossAttention,
    PositionalEmbedding,
    SelfAttention,
    SelfAttentionStack,
    SequentialSkipConnection,
    SquaredReLU,
    get_activation,
)

__all__ = [
    "MLP",
    "CrossAttention",
    "PositionalEmbedding",
    "SelfAttention",
    "SelfAttentionStack",
    "SequentialSkipConnection",
    "SquaredReLU",
    "functional",
    "generalized_advantage_estimate",
    "get_activation",
    "modules",
    "ppo_losses",
]
