"""Sampling parameters, and sampled completions with their log-probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlox_llm.configs import LanguageConfig, SamplingConfig

__all__ = ["Completions", "Sampling", "warn_of_copies", "warn_of_truncation"]


@dataclass(frozen=True)
class Sampling:
    """How completions are sampled.

    Args:
        max_new_tokens: most tokens of a completion.
        temperature: what logits are divided by.
        top_k: sample of the k likeliest; 0 of all.
        top_p: sample of the likeliest tokens of this total probability.
        min_p: sample of the tokens at least this many times as likely as the likeliest.
        eos: tokens that end a completion, and belong to it.
        greedy: take the likeliest token instead.
        seed: fixes the samples.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    eos: tuple[int, ...] = ()
    greedy: bool = False
    seed: int = 0

    @classmethod
    def of(cls, config: LanguageConfig, eos: tuple[int, ...], greedy: bool = False) -> Sampling:
        """Return what a config says; of one without options of sampling, at most 8 tokens."""
        if not isinstance(config, SamplingConfig):
            return cls(8, eos=eos, greedy=greedy)
        return cls(
            max_new_tokens=config.max_new_tokens,
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
            min_p=config.min_p,
            eos=eos,
            greedy=greedy,
        )

    @property
    def filters(self) -> bool:
        """Whether tokens are left out before sampling."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    def filtered(self, logits: Tensor) -> Tensor:
        """Return logits (B, V) with those that are not sampled at -inf, as transformers does."""
        if self.top_k and self.top_k < logits.shape[1]:
            least = logits.topk(self.top_k, dim=1).values[:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        if self.top_p < 1:
            ordered, order = logits.sort(dim=1)
            below = ordered.softmax(1).cumsum(1) <= 1 - self.top_p
            below[:, -1] = False
            logits = logits.masked_fill(below.scatter(1, order, below), -torch.inf)
        if self.min_p > 0:
            probabilities = logits.softmax(1)
            least = self.min_p * probabilities.max(1, keepdim=True).values
            logits = logits.masked_fill(probabilities < least, -torch.inf)
        return logits

    def draw(self, scaled: Tensor, uniform: Tensor) -> Tensor:
        """Return one token (B,) per row, by the inverse of the distribution function.

        Args:
            scaled: (B, V) logits divided by the temperature.
            uniform: (B, 1) in [0, 1).
        """
        if self.greedy:
            return scaled.argmax(1)
        summed = self.filtered(scaled).softmax(1).double().cumsum(1)
        places = torch.searchsorted(summed, uniform.to(summed) * summed[:, -1:], right=True)
        return places.squeeze(1).clamp(max=scaled.shape[1] - 1)


@dataclass(frozen=True)
class Completions:
    """Sampled completions, one after the other those of each prompt."""

    prompts: list[Tensor]
    """N rows of token ids (P_i,), each repeated for its completions."""
    tokens: Tensor
    """(N, T) token ids; those outside :attr:`mask` mean nothing."""
    mask: Tensor
    """(N, T) True at the tokens of the completion, up to and with its first EOS."""
    logps: Tensor | None
    """(N, T) log-probabilities at the sampling temperature, over the whole vocabulary; ``None`` if
    who sampled them does not say."""
    ended: Tensor
    """(N,) whether an EOS ended the completion; True if there is no EOS token."""
    sampling: Sampling
    """How they were sampled."""
    version: int
    """Gradient steps of the weights that sampled them."""

    @property
    def lengths(self) -> Tensor:
        """Tokens (N,) of each completion."""
        return self.mask.sum(1)

    def rows(self, pad: int) -> tuple[list[Tensor], Tensor]:
        """Return what reward functions get: whole rows, and the prompts that they begin with.

        Args:
            pad: fills shorter prompts up on the left.

        Returns:
            N rows of prompt and completion, and the prompts (N, P).
        """
        width = max(len(prompt) for prompt in self.prompts)
        prompts = torch.full((len(self.tokens), width), pad, device=self.tokens.device)
        for row, prompt in zip(prompts, self.prompts, strict=True):
            row[width - len(prompt) :] = prompt
        kept = [row[:n] for row, n in zip(self.tokens, self.lengths.tolist(), strict=True)]
        return [torch.cat(pair) for pair in zip(prompts, kept, strict=True)], prompts

    def padded(self, pad: int) -> Tensor:
        """Return whole rows (N, P + T), prompts filled up on the left, completions on the right."""
        return torch.cat([self.rows(pad)[1], self.tokens.masked_fill(~self.mask, pad)], 1)

    def select(self, index: Tensor) -> Completions:
        """Return the completions of the given places."""
        return Completions(
            prompts=[self.prompts[int(i)] for i in index],
            tokens=self.tokens[index],
            mask=self.mask[index],
            logps=None if self.logps is None else self.logps[index],
            ended=self.ended[index],
            sampling=self.sampling,
            version=self.version,
        )


def warn_of_copies(done: Completions, group_size: int, *, own: bool) -> None:
    """Warn if every prompt has the same completion over and over, which teaches nothing.

    Args:
        done: whole groups of completions.
        group_size: completions of each prompt.
        own: whether the model's own ``generate`` sampled them.
    """
    rows = done.tokens.masked_fill(~done.mask, -1)
    tokens = rows.reshape(-1, group_size, rows.shape[1])
    if not bool((tokens == tokens[:, :1]).all()):
        return
    why = (
        "its generate seems to take the likeliest token; let it sample, or pass sampler='rlox'"
        if own
        else "its probabilities leave no choice; raise the temperature"
    )
    warnings.warn(
        f"all {group_size} completions of each prompt are the same, so that every advantage is 0 "
        f"and the model learns nothing from rewards: {why}",
        RuntimeWarning,
        stacklevel=3,
    )


def warn_of_truncation(done: Completions, *, masked: bool) -> None:
    """Warn that no completion ended by itself.

    Args:
        done: completions, none of which an EOS ended.
        masked: whether those are left out of the loss.
    """
    effect = "nothing is learnt from them" if masked else "the model never sees an end rewarded"
    warnings.warn(
        f"all {len(done.tokens)} completions were truncated at "
        f"max_new_tokens={done.sampling.max_new_tokens} before an EOS, so that {effect}; raise it",
        RuntimeWarning,
        stacklevel=3,
    )


def padded_tokens(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return rows of token ids filled up on the right (N, T), and their lengths (N,)."""
    lengths = torch.tensor([len(row) for row in rows], device=device)
    tokens = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for filled, row in zip(tokens, rows, strict=True):
        filled[: len(row)] = torch.as_tensor(row, dtype=torch.long)
    return tokens.to(device), lengths
