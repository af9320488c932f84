"""Perceivers: a few latent vectors that attend to long sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlox_rl8.nn.functional import SkipKind
from rlox_rl8.nn.modules.attention import CrossAttention, SelfAttention, SelfAttentionStack
from rlox_rl8.nn.modules.module import Module

__all__ = ["PerceiverIOLayer", "PerceiverLayer"]


class PerceiverLayer(Module[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]):
    """Latent vectors attend to a sequence, and then to themselves.

    Args:
        embed_dim: width.
        num_heads: heads of all attention.
        hidden_dim: of the perceptrons.
        num_layers: layers of self-attention.
        activation_fn: see :func:`rlox_rl8.nn.get_activation`.
        attention_dropout: probability of attention weights.
        hidden_dropout: probability within the perceptrons.
        skip_kind: see :class:`SequentialSkipConnection`.
        share_parameters: whether the layers of self-attention are one and the same.

    Source:
        Jaegle et al. 2021, "Perceiver: general perception with iterative attention", sec. 3.1.
    """

    def __init__(
        self,
        embed_dim: int,
        /,
        *,
        num_heads: int = 2,
        hidden_dim: int = 128,
        num_layers: int = 2,
        activation_fn: str = "relu",
        attention_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        skip_kind: SkipKind = "cat",
        share_parameters: bool = False,
    ) -> None:
        super().__init__()
        arguments = (
            num_heads, hidden_dim, activation_fn, attention_dropout, hidden_dropout, skip_kind
        )  # fmt: skip
        self.cross_attention = CrossAttention(embed_dim, *arguments)
        self.self_attention = SelfAttentionStack(
            SelfAttention(embed_dim, *arguments), num_layers, share_parameters=share_parameters
        )

    def forward(
        self,
        q: Tensor,
        kv: Tensor,
        key_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return latent vectors (B, Q, embed_dim); see :meth:`CrossAttention.forward`."""
        latent = self.cross_attention(q, kv, key_padding_mask, attention_mask)
        return self.self_attention(latent, None, None)


class PerceiverIOLayer(Module[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]):
    """A perceiver whose latent vectors a learnt array of another length attends to.

    Args:
        embed_dim: width.
        output_seq_dim: length O of the output.
        num_heads: see :class:`PerceiverLayer`, as are the others.
        hidden_dim: of the perceptrons.
        num_layers: layers of self-attention.
        activation_fn: see :func:`rlox_rl8.nn.get_activation`.
        attention_dropout: probability of attention weights.
        hidden_dropout: probability within the perceptrons.
        skip_kind: see :class:`SequentialSkipConnection`.
        share_parameters: whether the layers of self-attention are one and the same.

    Source:
        Jaegle et al. 2022, "Perceiver IO: a general architecture for structured inputs &
        outputs", sec. 3.1.
    """

    def __init__(
        self,
        embed_dim: int,
        output_seq_dim: int,
        /,
        *,
        num_heads: int = 2,
        hidden_dim: int = 128,
        num_layers: int = 2,
        activation_fn: str = "relu",
        attention_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        skip_kind: SkipKind = "cat",
        share_parameters: bool = False,
    ) -> None:
        super().__init__()
        self.perceiver_layer = PerceiverLayer(
            embed_dim,
            num_heads=num_heads,
            hidden_dim=hidden_dim,
            num_layers=num_layers,
            activation_fn=activation_fn,
            attention_dropout=attention_dropout,
            hidden_dropout=hidden_dropout,
            skip_kind=skip_kind,
            share_parameters=share_parameters,
        )
        self.output_query = nn.Parameter(torch.empty(output_seq_dim, embed_dim))
        nn.init.xavier_uniform_(self.output_query)
        self.decoder = CrossAttention(
            embed_dim, num_heads, hidden_dim, activation_fn, attention_dropout, hidden_dropout,
            skip_kind,
        )  # fmt: skip

    def forward(
        self,
        q: Tensor,
        kv: Tensor,
        key_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return (B, O, embed_dim); see :meth:`CrossAttention.forward`."""
        latent = self.perceiver_layer(q, kv, key_padding_mask, attention_mask)
        queries = self.output_query.expand(len(latent), -1, -1)
        return self.decoder(queries, latent, None, None)
