"""Sampling of completions, with their log-probabilities, from a stream of random numbers."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from rlox.errors import ConfigError
from torch import Tensor

from rlox_llm.configs import SamplingConfig
from rlox_llm.models import CausalModel

__all__ = ["Completions", "Sampling", "sample", "warn_of_copies"]


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
        own: let the model's ``generate`` do it, of which only ``max_new_tokens`` and ``eos`` hold.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    eos: tuple[int, ...] = ()
    greedy: bool = False
    own: bool = False

    @classmethod
    def of(
        cls, config: SamplingConfig, model: CausalModel, eos: tuple[int, ...], greedy: bool = False
    ) -> Sampling:
        """Return what a config says.

        Raises:
            ConfigError: the model has no ``generate`` of its own, and ``sampler`` asks for it.
        """
        if config.sampler == "model" and not model.generates:
            raise ConfigError(
                f"sampler='model' needs a generate(prompt_ids, max_new_tokens) of the "
                f"{type(model.module).__name__}'s own; leave it at 'auto'"
            )
        return cls(
            max_new_tokens=config.max_new_tokens,
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
            min_p=config.min_p,
            eos=eos,
            greedy=greedy,
            own=config.sampler != "rlox" and model.generates,
        )

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
    the model's own ``generate`` sampled."""
    ended: Tensor
    """(N,) whether an EOS ended the completion; True if there is no EOS token."""

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
        kept = [tokens[mask] for tokens, mask in zip(self.tokens, self.mask, strict=True)]
        return [torch.cat(pair) for pair in zip(prompts, kept, strict=True)], prompts

    def padded(self, pad: int) -> Tensor:
        """Return whole rows (N, P + T), prompts filled up on the left, completions on the right."""
        return torch.cat([self.rows(pad)[1], self.tokens.masked_fill(~self.mask, pad)], 1)


@torch.no_grad()
def sample(
    model: CausalModel,
    prompts: Sequence[Tensor],
    sampling: Sampling,
    generator: torch.Generator,
    n: int = 1,
) -> Completions:
    """Sample ``n`` completions of each prompt, dropout off.

    Prompts of one length are completed together. Every draw comes from ``generator``, on the CPU.

    Raises:
        ValueError: prompt and completion are longer than the model's context, or the model's
            ``generate`` returned something else than prompts and new tokens.
    """
    _require_room(model, prompts, sampling)
    width = sampling.max_new_tokens
    shape, device = (len(prompts) * n, width), model.device
    tokens = torch.zeros(shape, dtype=torch.long, device=device)
    logps = None if sampling.own else torch.zeros(shape, device=device)
    by_length: dict[int, list[int]] = {}
    for index, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), []).append(index)
    drawn = 0
    with model.mode(training=False):
        for indices in by_length.values():
            ids = torch.stack([prompts[index] for index in indices])
            places = torch.tensor([index * n + k for index in indices for k in range(n)])
            if logps is None:
                new = _own(model, ids.repeat_interleave(n, 0), sampling, generator)
            else:
                new, new_logps = _sample(model, ids, sampling, generator, n)
                logps[places.to(device), : new.shape[1]] = new_logps.to(logps)
            tokens[places.to(device), : new.shape[1]] = new
            drawn = max(drawn, new.shape[1])
    tokens = tokens[:, :drawn]
    ends = torch.isin(tokens, torch.tensor(sampling.eos, dtype=torch.long, device=device))
    mask = ends.long().cumsum(1) - ends.long() == 0
    ended = ends.any(1) if sampling.eos else torch.ones(shape[0], dtype=torch.bool, device=device)
    return Completions(
        prompts=[prompt for prompt in prompts for _ in range(n)],
        tokens=tokens,
        mask=mask,
        logps=None if logps is None else logps[:, :drawn].masked_fill(~mask, 0.0),
        ended=ended,
    )


def _require_room(model: CausalModel, prompts: Sequence[Tensor], sampling: Sampling) -> None:
    longest = max(len(prompt) for prompt in prompts)
    if model.context is not None and longest + sampling.max_new_tokens > model.context:
        raise ValueError(
            f"a prompt of {longest} tokens and max_new_tokens={sampling.max_new_tokens} pass the "
            f"context of the {model.name}, {model.context} tokens; shorten one of them"
        )


def _sample(
    model: CausalModel, ids: Tensor, sampling: Sampling, generator: torch.Generator, n: int
) -> tuple[Tensor, Tensor]:
    """Return new tokens (P * n, T) of prompts (P, L) of one length, and log-probabilities."""
    cached = model.takes_cache
    output = model.forward(ids, torch.ones_like(ids), **({"use_cache": True} if cached else {}))
    last = model.logits_of(output, ids)[:, -1].repeat_interleave(n, 0)
    cache: Any = getattr(output, "past_key_values", None) if cached else None
    if hasattr(cache, "batch_repeat_interleave") and n > 1:
        cache.batch_repeat_interleave(n)
    elif isinstance(cache, tuple) and n > 1:  # of GPT-2 before transformers 4.52
        cache = tuple(tuple(part.repeat_interleave(n, 0) for part in layer) for layer in cache)
    rows = ids.repeat_interleave(n, 0)
    eos = torch.tensor(sampling.eos, dtype=torch.long, device=ids.device)
    finished = torch.zeros(len(rows), dtype=torch.bool, device=ids.device)
    logps: list[Tensor] = []
    for step in range(sampling.max_new_tokens):
        scaled = last / sampling.temperature
        token = _draw(scaled, sampling, generator)
        logps.append(scaled.log_softmax(1).gather(1, token[:, None]))
        rows = torch.cat([rows, token[:, None]], 1)
        finished |= torch.isin(token, eos)
        if step + 1 == sampling.max_new_tokens or bool(finished.all()):
            break
        if cache is None:
            last = model.logits_of(model.forward(rows, torch.ones_like(rows)), rows)[:, -1]
            continue
        output = model.forward(
            rows[:, -1:], torch.ones_like(rows), past_key_values=cache, use_cache=True
        )
        cache = output.past_key_values
        last = model.logits_of(output, rows[:, -1:])[:, -1]
    return rows[:, ids.shape[1] :], torch.cat(logps, 1)


def _draw(scaled: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """Return one token per row, by the inverse of the distribution function."""
    if sampling.greedy:
        return scaled.argmax(1)
    summed = sampling.filtered(scaled).softmax(1).double().cumsum(1)
    uniform = torch.rand(len(scaled), 1, generator=generator, dtype=torch.float64)
    places = torch.searchsorted(summed, uniform.to(scaled.device) * summed[:, -1:], right=True)
    return places.squeeze(1).clamp(max=scaled.shape[1] - 1)


def _own(model: CausalModel, ids: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """Return the new tokens (N, T) of the model's own ``generate``."""
    module: Any = model.module
    n_tokens = sampling.max_new_tokens
    names = inspect.signature(module.generate).parameters
    with _drawing_from(generator):
        if "max_new_tokens" in names:
            rows = module.generate(ids, max_new_tokens=n_tokens)
        else:
            rows = module.generate(ids, n_tokens)
    if not isinstance(rows, Tensor) or rows.dim() != 2 or len(rows) != len(ids):
        found = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
        raise ValueError(
            f"generate of the {model.name} must return rows ({len(ids)}, prompt + new tokens), got "
            f"{found}"
        )
    length = ids.shape[1]
    if not torch.equal(rows[:, :length].to(ids), ids):
        raise ValueError(f"the rows that generate of the {model.name} returns must begin with the "
                         "prompts")  # fmt: skip
    if rows.shape[1] == length:
        raise ValueError(f"generate of the {model.name} returned no new tokens")
    return rows[:, length : length + n_tokens].long()


@contextmanager
def _drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Let code that draws from torch's global generator draw from ``generator``."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(generator.get_state())
        try:
            yield
        finally:
            generator.set_state(torch.get_rng_state())


def warn_of_copies(done: Completions, group_size: int, sampling: Sampling) -> None:
    """Warn if every prompt has the same completion over and over, which teaches nothing."""
    rows = done.tokens.masked_fill(~done.mask, -1)
    tokens = rows.reshape(-1, group_size, rows.shape[1])
    if not bool((tokens == tokens[:, :1]).all()):
        return
    why = (
        "its generate seems to take the likeliest token; let it sample, or pass sampler='rlox'"
        if sampling.own
        else "its probabilities leave no choice; raise the temperature"
    )
    warnings.warn(
        f"all {group_size} completions of each prompt are the same, so that every advantage is 0 "
        f"and the model learns nothing from rewards: {why}",
        RuntimeWarning,
        stacklevel=3,
    )
