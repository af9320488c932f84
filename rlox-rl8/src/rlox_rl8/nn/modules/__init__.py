"""Perceptrons, attention and connections for models."""

from rlox_rl8.nn.modules.activations import SquaredReLU, get_activation
from rlox_rl8.nn.modules.attention import CrossAttention, SelfAttention, SelfAttentionStack
from rlox_rl8.nn.modules.embeddings import PositionalEmbedding
from rlox_rl8.nn.modules.mlp import MLP
from rlox_rl8.nn.modules.module import Module
from rlox_rl8.nn.modules.perceiver import PerceiverIOLayer, PerceiverLayer
from rlox_rl8.nn.modules.skip import SequentialSkipConnection

__all__ = [
    "MLP",
    "CrossAttention",
    "Module",
    "PerceiverIOLayer",
    "PerceiverLayer",
    "PositionalEmbedding",
    "SelfAttention",
    "SelfAttentionStack",
    "SequentialSkipConnection",
    "SquaredReLU",
    "get_activation",
]
