"""Embeddings of places in a sequence."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rlox_rl8.nn.modules.module import Module

__all__ = ["PositionalEmbedding"]


class PositionalEmbedding(Module[[Tensor], Tensor]):
    """Adds sines and cosines of the place; widths may be odd.

    Args:
        embed_dim: width.
        max_len: longest sequence.
        dropout: probability after it.

    Source:
        Vaswani et al. 2017, "Attention is all you need", sec. 3.5.
    """

    pe: Tensor
    """(1, max_len, embed_dim)."""

    def __init__(self, embed_dim: int, max_len: int, /, *, dropout: float = 0.0) -> None:
        super().__init__()
        place = torch.arange(max_len)[:, None]
        rate = torch.exp(torch.arange(0, embed_dim, 2) * (-math.log(10_000.0) / embed_dim))
        table = torch.zeros(1, max_len, embed_dim)
        table[0, :, 0::2] = torch.sin(place * rate)
        table[0, :, 1::2] = torch.cos(place * rate[: embed_dim // 2])
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pe", table)

    def forward(self, x: Tensor, /) -> Tensor:
        """Return ``x`` (B, T, embed_dim) with its places."""
        out: Tensor = self.dropout(x + self.pe[:, : x.shape[1]])
        return out
