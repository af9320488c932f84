"""Attention within and between sequences, and pointers."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from rlox_rl8.nn.functional import SkipKind, masked_log_softmax
from rlox_rl8.nn.modules.activations import get_activation
from rlox_rl8.nn.modules.module import Module
from rlox_rl8.nn.modules.skip import SequentialSkipConnection

__all__ = ["CrossAttention", "PointerNetwork", "SelfAttention", "SelfAttentionStack"]


def _connection(
    embed_dim: int, kind: SkipKind, hidden_dim: int, activation_fn: str, dropout: float
) -> SequentialSkipConnection:
    """Return the connection around attention and the perceptron that follows it."""
    skip = SequentialSkipConnection(embed_dim, kind)
    skip.append(
        nn.Sequential(
            nn.LayerNorm(embed_dim),
            nn.Linear(embed_dim, hidden_dim),
            get_activation(activation_fn),
            nn.Dropout(dropout),
            nn.Linear(hidden_dim, embed_dim),
        )
    )
    return skip


class CrossAttention(Module[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]):
    """Attention of queries to keys, and a perceptron, each with a skip connection.

    Args:
        embed_dim: width.
        num_heads: heads, which divide it.
        hidden_dim: of the perceptron.
        activation_fn: see :func:`rlox_rl8.nn.get_activation`.
        attention_dropout: probability of attention weights.
        hidden_dropout: probability within the perceptron.
        skip_kind: see :class:`SequentialSkipConnection`.
    """

    def __init__(
        self,
        embed_dim: int,
        /,
        num_heads: int = 2,
        hidden_dim: int = 128,
        activation_fn: str = "relu",
        attention_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        skip_kind: SkipKind = "cat",
    ) -> None:
        super().__init__()
        self.q_norm, self.kv_norm = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
        self.attention = nn.MultiheadAttention(
            embed_dim, num_heads, dropout=attention_dropout, batch_first=True
        )
        self.skip_connection = _connection(
            embed_dim, skip_kind, hidden_dim, activation_fn, hidden_dropout
        )

    def forward(
        self,
        q: Tensor,
        kv: Tensor,
        key_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return (B, Q, embed_dim) of queries (B, Q, ...) and keys (B, K, ...).

        Masks (B, K) and (Q, K) are true where attention is forbidden.
        """
        keys = self.kv_norm(kv)
        found, _ = self.attention(
            self.q_norm(q), keys, keys, key_padding_mask=key_padding_mask,
            attn_mask=attention_mask, need_weights=False,
        )  # fmt: skip
        return self.skip_connection(q, found)


class SelfAttention(Module[[Tensor, Tensor | None, Tensor | None], Tensor]):
    """Attention of a sequence to itself; arguments are those of :class:`CrossAttention`."""

    def __init__(
        self,
        embed_dim: int,
        /,
        num_heads: int = 2,
        hidden_dim: int = 128,
        activation_fn: str = "relu",
        attention_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        skip_kind: SkipKind = "cat",
    ) -> None:
        super().__init__()
        self.x_norm = nn.LayerNorm(embed_dim)
        self.attention = nn.MultiheadAttention(
            embed_dim, num_heads, dropout=attention_dropout, batch_first=True
        )
        self.skip_connection = _connection(
            embed_dim, skip_kind, hidden_dim, activation_fn, hidden_dropout
        )

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return (B, T, embed_dim); masks are true where attention is forbidden."""
        normal = self.x_norm(x)
        found, _ = self.attention(
            normal, normal, normal, key_padding_mask=key_padding_mask,
            attn_mask=attention_mask, need_weights=False,
        )  # fmt: skip
        return self.skip_connection(x, found)


class SelfAttentionStack(Module[[Tensor, Tensor | None, Tensor | None], Tensor]):
    """Several layers of self-attention.

    Args:
        module: the layer, of which each gets a copy.
        num_layers: layers.
        share_parameters: whether all are the layer itself.
    """

    def __init__(
        self, module: SelfAttention, num_layers: int, /, *, share_parameters: bool = False
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            module if share_parameters else copy.deepcopy(module) for _ in range(num_layers)
        )

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return (B, T, embed_dim)."""
        for layer in self.layers:
            x = layer(x, key_padding_mask, attention_mask)
        return x


class PointerNetwork(Module[[Tensor, Tensor, Tensor | None], Tensor]):
    """Which element of a sequence another sequence's elements point to.

    Args:
        embed_dim: width of both.

    Source:
        Vinyals et al. 2015, "Pointer networks", eq. 3.
    """

    def __init__(self, embed_dim: int, /) -> None:
        super().__init__()
        self.W1 = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W2 = nn.Linear(embed_dim, embed_dim, bias=False)
        self.VT = nn.Linear(embed_dim, 1, bias=False)

    def forward(
        self, decoder_out: Tensor, encoder_out: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Return log-probabilities (B, D, E).

        Args:
            decoder_out: (B, D, embed_dim), which points.
            encoder_out: (B, E, embed_dim), which is pointed to.
            mask: (B, D, E), true where an element may be pointed to; ``None``: everywhere.
        """
        blended = torch.tanh(self.W2(decoder_out)[:, :, None] + self.W1(encoder_out)[:, None])
        return masked_log_softmax(self.VT(blended).squeeze(-1), mask=mask)
