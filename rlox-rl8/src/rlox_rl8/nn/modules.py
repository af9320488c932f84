"""Perceptrons, attention and connections for models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

__all__ = [
    "MLP",
    "CrossAttention",
    "PositionalEmbedding",
    "SelfAttention",
    "SelfAttentionStack",
    "SequentialSkipConnection",
    "SquaredReLU",
    "get_activation",
]


class SquaredReLU(nn.Module):
    """max(x, 0)²."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the squares."""
        return x.relu().square()


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "celu": nn.CELU, "elu": nn.ELU, "gelu": nn.GELU, "hardsigmoid": nn.Hardsigmoid,
    "hardswish": nn.Hardswish, "hardtanh": nn.Hardtanh, "identity": nn.Identity,
    "leaky_relu": nn.LeakyReLU, "mish": nn.Mish, "relu": nn.ReLU, "relu6": nn.ReLU6,
    "selu": nn.SELU, "sigmoid": nn.Sigmoid, "softplus": nn.Softplus, "softsign": nn.Softsign,
    "squared_relu": SquaredReLU, "swish": nn.SiLU, "tanh": nn.Tanh,
}  # fmt: skip


IN_PLACE = frozenset({"relu", "relu6", "leaky_relu", "elu", "celu", "selu"})
"""Activations whose gradient needs only what they return: they may overwrite their input."""


def get_activation(name: str, /, *, inplace: bool = False) -> nn.Module:
    """Return the activation called ``name``.

    Args:
        name: of the activation.
        inplace: overwrite the input, if the activation can; the others ignore it.

    Raises:
        ValueError: there is none.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name](**{"inplace": True} if inplace and name in IN_PLACE else {})


class MLP(nn.Sequential):
    """Linear layers, each followed by its activation.

    Args:
        input_dim: width of the input.
        hiddens: widths of the layers.
        activation_fn: see :func:`get_activation`.
        norm_layer: class put before each activation, such as ``torch.nn.LayerNorm``.
        dropout: probability after each activation.
        bias: whether layers have one.
        inplace: see :func:`get_activation`.
    """

    def __init__(
        self,
        input_dim: int,
        hiddens: Sequence[int],
        *,
        activation_fn: str = "relu",
        norm_layer: type[nn.Module] | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        inplace: bool = False,
    ) -> None:
        layers: list[nn.Module] = []
        for width in hiddens:
            layers.append(nn.Linear(input_dim, width, bias=bias))
            if norm_layer is not None:
                layers.append(norm_layer(width))
            layers.append(get_activation(activation_fn, inplace=inplace))
            if dropout:
                layers.append(nn.Dropout(dropout))
            input_dim = width
        super().__init__(*layers)


class SequentialSkipConnection(nn.Module):
    """Joins what a module returns with its input.

    Args:
        embed_dim: width of both.
        kind: ``"residual"`` adds, ``"cat"`` joins by a linear layer, ``None`` takes the output.
    """

    def __init__(
        self, embed_dim: int, *, kind: Literal["residual", "cat"] | None = "residual"
    ) -> None:
        super().__init__()
        if kind not in ("residual", "cat", None):
            raise ValueError(f"kind must be 'residual', 'cat' or None, got {kind!r}")
        self.kind = kind
        self.fan_in = nn.Linear(2 * embed_dim, embed_dim) if kind == "cat" else None

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return input ``x`` and output ``y`` joined."""
        if self.fan_in is not None:
            joined: Tensor = self.fan_in(torch.cat([x, y], -1))
            return joined
        return x + y if self.kind == "residual" else y


class PositionalEmbedding(nn.Module):
    """Adds sines and cosines of the position; widths may be odd.

    Args:
        embed_dim: width.
        max_len: longest sequence.
        dropout: probability after it.

    Source:
        Vaswani et al. 2017, "Attention is all you need", sec. 3.5.
    """

    def __init__(self, embed_dim: int, max_len: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        position = torch.arange(max_len)[:, None]
        rate = torch.exp(torch.arange(0, embed_dim, 2) * (-math.log(10_000.0) / embed_dim))
        table = torch.zeros(max_len, embed_dim)
        table[:, 0::2] = torch.sin(position * rate)
        table[:, 1::2] = torch.cos(position * rate[: embed_dim // 2])
        self.register_buffer("table", table)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` (B, T, embed_dim) with positions."""
        table: Any = self.table
        out: Tensor = self.dropout(x + table[: x.shape[1]])
        return out


class CrossAttention(nn.Module):
    """Attention of queries to keys, and a perceptron, each with a skip connection.

    Args:
        embed_dim: width.
        num_heads: heads, which divide it.
        hidden_dim: of the perceptron.
        activation_fn: see :func:`get_activation`.
        attention_dropout: probability of attention weights.
        skip_kind: see :class:`SequentialSkipConnection`.
    """

    def __init__(
        self,
        embed_dim: int,
        *,
        num_heads: int = 2,
        hidden_dim: int = 128,
        activation_fn: str = "relu",
        attention_dropout: float = 0.0,
        skip_kind: Literal["residual", "cat"] | None = "residual",
    ) -> None:
        super().__init__()
        self.norm_q, self.norm_kv, self.norm_out = (nn.LayerNorm(embed_dim) for _ in range(3))
        self.attention = nn.MultiheadAttention(
            embed_dim, num_heads, dropout=attention_dropout, batch_first=True
        )
        self.feedforward = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim),
            get_activation(activation_fn),
            nn.Linear(hidden_dim, embed_dim),
        )
        self.skips = nn.ModuleList(
            SequentialSkipConnection(embed_dim, kind=skip_kind) for _ in range(2)
        )

    def forward(
        self,
        q: Tensor,
        kv: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return (B, Q, embed_dim); masks are true where attention is forbidden."""
        keys = self.norm_kv(kv)
        found, _ = self.attention(
            self.norm_q(q), keys, keys, key_padding_mask=key_padding_mask,
            attn_mask=attention_mask, need_weights=False,
        )  # fmt: skip
        x = self.skips[0](q, found)
        out: Tensor = self.skips[1](x, self.feedforward(self.norm_out(x)))
        return out


class SelfAttention(CrossAttention):
    """Attention of a sequence to itself; see :class:`CrossAttention`."""

    def forward(self, x: Tensor, **masks: Tensor | None) -> Tensor:  # type: ignore[override]
        """Return (B, T, embed_dim)."""
        return super().forward(x, x, **masks)


class SelfAttentionStack(nn.Module):
    """Several layers of self-attention.

    Args:
        num_layers: layers.
        share_parameters: whether they are one and the same.
        arguments: of :class:`SelfAttention`.
    """

    def __init__(
        self, embed_dim: int, num_layers: int, *, share_parameters: bool = False, **arguments: Any
    ) -> None:
        super().__init__()
        distinct = 1 if share_parameters else num_layers
        self.num_layers = num_layers
        self.layers = nn.ModuleList(SelfAttention(embed_dim, **arguments) for _ in range(distinct))

    def forward(self, x: Tensor, **masks: Tensor | None) -> Tensor:
        """Return (B, T, embed_dim)."""
        for i in range(self.num_layers):
            x = self.layers[i % len(self.layers)](x, **masks)
        return x
