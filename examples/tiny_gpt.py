"""A small language model and its task: repeat the prompt."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WORDS, LENGTH = 8, 2


class GPT(nn.Module):
    """One block of a transformer over a vocabulary of eight words."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(8, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 64, 0.0, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return logits (B, L, words) of token ids (B, L)."""
        length = input_ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.words(input_ids) + self.places.weight[:length]
        logits: Tensor = self.head(self.block(x, src_mask=mask, is_causal=True))
        return logits


def make_prompts(count: int = 64) -> Tensor:
    """Return prompts (count, 2)."""
    return torch.randint(0, WORDS, (count, LENGTH))


def repeated(completions: Tensor, prompts: Tensor) -> list[float]:
    """Return of each completion the share of places at which it repeats the prompt."""
    tail = torch.stack([row[LENGTH : 2 * LENGTH] for row in completions])
    return (tail == prompts).float().mean(1).tolist()
