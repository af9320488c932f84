"""Completions of prompts: sampling parameters, samplers, and their results."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from rlox_llm.configs import LanguageConfig, SamplingConfig
from rlox_llm.models import CausalModel
from rlox_llm.prompts import padded_completions, padded_prompts, require_fit
from rlox_llm.tokens import Texts


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters.

    Args:
        max_new_tokens: maximum length of a completion.
        temperature: divisor of logits.
        top_k: sample from the k likeliest tokens; 0: from all.
        top_p: sample from the likeliest tokens of this total probability.
        min_p: sample from tokens with at least this share of the likeliest one's probability.
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
        """Return a config's parameters; without sampling options, at most 8 tokens."""
        if not isinstance(config, SamplingConfig):
            return cls(8, eos=eos, greedy=greedy)
        options = ("max_new_tokens", "temperature", "top_k", "top_p", "min_p")
        return cls(**{name: getattr(config, name) for name in options}, eos=eos, greedy=greedy)

    def ends(self, tokens: Tensor) -> Tensor:
        """Return whether tokens of any shape end a completion."""
        return torch.isin(tokens, torch.tensor(self.eos, dtype=torch.long, device=tokens.device))

    def filtered(self, logits: Tensor) -> Tensor:
        """Return logits (B, V), -inf for excluded tokens, as in transformers."""
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
        """Return one token (B,) per row, by the inverse distribution function.

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
class Sampled:
    """N completions of up to T tokens, sampled token by token."""

    params: Sampling
    draws: Tensor
    """(T, N, 1) uniform numbers."""
    tokens: Tensor
    """(N, T)"""
    logps: Tensor
    """(N, T)"""
    lengths: Tensor
    """(N,)"""

    def take(self, step: int, alive: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Sample a token of each unfinished completion.

        Args:
            step: number of tokens so far.
            alive: (B,) indices of these completions.
            logits: (B, V)

        Returns:
            The tokens (B,), and the indices among the B of still unfinished completions.
        """
        scaled = logits / self.params.temperature
        last = self.params.draw(scaled, self.draws[step][alive])
        self.tokens[alive, step] = last
        chosen = scaled.gather(1, last[:, None])[:, 0] - scaled.logsumexp(1)
        self.logps[alive, step] = chosen.to(self.logps)
        ended = self.params.ends(last)
        kept = (~ended).nonzero()[:, 0]
        if len(kept) < len(alive):
            self.lengths[alive[ended]] = step + 1
        return last, kept


@dataclass(frozen=True)
class Rollouts:
    """Samples of a :class:`Generator`; completions of one prompt are adjacent."""

    token_ids: list[list[int]]
    """N completions without padding, each with its EOS."""
    logprobs: list[list[float]] | None
    """Each token's log-probability at the sampling temperature; ``None`` if unknown."""
    params: Sampling
    """The sampling parameters."""
    version: int
    """Gradient steps of the sampling weights."""


@runtime_checkable
class Generator(Protocol):
    """A sampler of completions: this process, or an engine with a copy of the weights.

    An engine's log-probabilities differ from the training's, by rounding and more;
    :class:`rlox_llm.grpo.GRPO` computes its own and weights completions by the ratio.
    """

    in_process: bool
    """Whether it runs the trained model itself."""

    def generate(self, prompts: Sequence[Sequence[int]], n: int, params: Sampling) -> Rollouts:
        """Sample ``n`` completions of each prompt.

        Args:
            prompts: token ids.
            n: completions of each.
            params: sampling parameters; the same ``seed`` gives the same samples.
        """

    def sync(self, named_parameters: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Load the current weights, those after ``version`` gradient steps."""


@dataclass(frozen=True)
class Completions:
    """Sampled completions; those of one prompt are adjacent."""

    prompts: list[Tensor]
    """N rows of token ids (P_i,), each repeated for its completions."""
    tokens: Tensor
    """(N, T) token ids; meaningless outside :attr:`mask`."""
    mask: Tensor
    """(N, T) True at the tokens of the completion, including its first EOS."""
    logps: Tensor | None
    """(N, T) log-probabilities at the sampling temperature, over the whole vocabulary; ``None`` if
    the sampler does not return them."""
    ended: Tensor
    """(N,) whether an EOS ended the completion; True if there is no EOS token."""
    sampling: Sampling
    """The sampling parameters."""
    version: int
    """Gradient steps of the sampling weights."""

    @property
    def lengths(self) -> Tensor:
        """Tokens (N,) of each completion."""
        return self.mask.sum(1)

    def rows(self, pad: int) -> tuple[list[Tensor], Tensor]:
        """Return the arguments of reward functions: whole rows, and their prompts.

        Args:
            pad: padding token for the left side of shorter prompts.

        Returns:
            N rows of prompt and completion, and the prompts (N, P).
        """
        prompts = padded_prompts(self.prompts, pad)
        kept = [row[:n] for row, n in zip(self.tokens, self.lengths.tolist(), strict=True)]
        return [torch.cat(pair) for pair in zip(prompts, kept, strict=True)], prompts

    def padded(self, pad: int) -> Tensor:
        """Return whole rows (N, P + T), prompts padded on the left, completions on the right."""
        return torch.cat([self.rows(pad)[1], self.tokens.masked_fill(~self.mask, pad)], 1)

    def select(self, index: Tensor) -> Completions:
        """Return the completions at ``index``."""
        return replace(
            self,
            prompts=[self.prompts[i] for i in index.tolist()],
            tokens=self.tokens[index],
            mask=self.mask[index],
            logps=None if self.logps is None else self.logps[index],
            ended=self.ended[index],
        )

    def table(
        self, texts: Texts, columns: Mapping[str, Sequence[Any]], n_rows: int | None = None
    ) -> dict[str, list[Any]]:
        """Return a table for loggers, with texts if there is a tokenizer, else token ids.

        Args:
            texts: turns token ids into texts.
            columns: further columns of N values, by name.
            n_rows: number of completions, from the first; ``None``: all.
        """

        def read(ids: list[int]) -> str:
            return " ".join(map(str, ids)) if texts.tokenizer is None else texts.text(ids)

        rows = list(zip(self.prompts, self.tokens, self.mask, strict=True))[:n_rows]
        return {
            "prompt": [read(prompt.tolist()) for prompt, _, _ in rows],
            "completion": [read(tokens[mask].tolist()) for _, tokens, mask in rows],
            **{name: list(values)[:n_rows] for name, values in columns.items()},
        }


def complete(
    generator: Generator,
    model: CausalModel,
    prompts: Sequence[Tensor],
    sampling: Sampling,
    stream: torch.Generator,
    n: int = 1,
    *,
    version: int = 0,
) -> Completions:
    """Return ``n`` completions of each prompt, checked.

    Args:
        generator: the sampler.
        model: the trained model; its weights go to the generator first.
        prompts: rows of token ids.
        sampling: sampling parameters; the seed is drawn from ``stream``.
        stream: the run's random stream.
        n: completions of each prompt.
        version: gradient steps of the weights.

    Raises:
        DatasetError: prompt and completion are longer than the model's context.
        ValueError: the generator returned another number of completions or an empty one, or used
            stale weights or other sampling parameters.
    """
    longest = max(prompts, key=len)
    require_fit(model, "a prompt", longest, max_new_tokens=sampling.max_new_tokens)
    params = replace(sampling, seed=int(torch.randint(2**31, (), generator=stream)))
    generator.sync(model.module.named_parameters(), version)
    found = generator.generate([prompt.tolist() for prompt in prompts], n, params)
    _require_as_asked(found, len(prompts) * n, params, version)
    given = [torch.as_tensor(row, dtype=torch.long) for row in found.token_ids]
    tokens, within = (each.to(model.device) for each in padded_completions(given))
    ends = params.ends(tokens) & within
    mask = (ends.long().cumsum(1) - ends.long() == 0) & within
    ended = ends.any(1) if params.eos else torch.ones(len(tokens), dtype=torch.bool)
    logps = None
    if found.logprobs is not None:
        logps = torch.zeros(tokens.shape)
        for row, values in zip(logps, found.logprobs, strict=True):
            row[: len(values)] = torch.tensor(values)
        logps = logps.to(model.device).masked_fill(~mask, 0.0)
    rows = [prompt for prompt in prompts for _ in range(n)]
    return Completions(rows, tokens, mask, logps, ended.to(model.device), params, version)


def _require_as_asked(found: Rollouts, n: int, params: Sampling, version: int) -> None:
    if len(found.token_ids) != n:
        raise ValueError(f"the generator must return {n} completions, got {len(found.token_ids)}")
    for i, row in enumerate(found.token_ids):
        if not row:
            raise ValueError(f"completion {i} of the generator is empty; it must hold its EOS")
        if found.logprobs is not None and len(found.logprobs[i]) != len(row):
            raise ValueError(
                f"completion {i} of the generator has {len(row)} tokens and "
                f"{len(found.logprobs[i])} log-probabilities"
            )
    for name in ("temperature", "top_k", "top_p", "min_p", "greedy"):
        asked, got = getattr(params, name), getattr(found.params, name)
        if asked != got:
            raise ValueError(
                f"the generator sampled with {name}={got}, expected {asked}; learning would use "
                "wrong probabilities"
            )
    if found.version != version:
        raise ValueError(
            f"the generator has the weights of gradient step {found.version}, expected those of "
            f"{version}; its sync(named_parameters, version) must load them"
        )


def warn_of_copies(done: Completions, group_size: int, *, own: bool) -> None:
    """Warn if all completions of each prompt are equal, which teaches nothing.

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
        f"and rewards teach the model nothing: {why}",
        RuntimeWarning,
        stacklevel=3,
    )


def warn_of_truncation(done: Completions, *, masked: bool) -> None:
    """Warn that no completion ended by itself.

    Args:
        done: completions without an EOS.
        masked: whether the loss leaves them out.
    """
    effect = "nothing is learnt from them" if masked else "the model never sees an end rewarded"
    warnings.warn(
        f"all {len(done.tokens)} completions were truncated at "
        f"max_new_tokens={done.sampling.max_new_tokens} before an EOS, so that {effect}; raise it",
        RuntimeWarning,
        stacklevel=3,
    )
