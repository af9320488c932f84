"""Contract of samplers of completions, from token ids to token ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from rlox.errors import ConfigError, DatasetError
from torch import Tensor

from rlox_llm.configs import GRPOConfig
from rlox_llm.models import CausalModel
from rlox_llm.sampling import Completions, Sampling, padded_tokens

__all__ = ["Generator", "Rollouts", "complete", "require_engine_options"]


@dataclass(frozen=True)
class Rollouts:
    """What a :class:`Generator` sampled, one after the other the completions of each prompt."""

    token_ids: list[list[int]]
    """N completions without filling, each with its EOS."""
    logprobs: list[list[float]] | None
    """Of each token, at the sampling temperature; ``None`` if they are not known."""
    finish_reason: list[str]
    """``"stop"`` for an EOS, ``"length"`` for ``max_new_tokens``."""
    params: Sampling
    """How they were sampled."""
    version: int
    """Gradient steps of the weights that sampled them."""


@runtime_checkable
class Generator(Protocol):
    """Who samples completions: this process, or an engine with a copy of the weights.

    An engine outside has log-probabilities that differ from the training's by rounding, and more;
    :class:`rlox_llm.grpo.GRPO` computes its own and weighs completions by the ratio.
    """

    in_process: bool
    """Whether it runs the very model that is trained."""

    def generate(self, prompts: Sequence[Sequence[int]], n: int, params: Sampling) -> Rollouts:
        """Sample ``n`` completions of each prompt.

        Args:
            prompts: token ids.
            n: completions of each.
            params: how to sample; the same ``seed`` gives the same samples.
        """

    def sync(self, named_parameters: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Take the weights of now; they are those after ``version`` gradient steps."""


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
        generator: who samples.
        model: what is trained; its weights go to the generator first.
        prompts: rows of token ids.
        sampling: how; its seed is drawn from ``stream``.
        stream: of the run.
        n: completions of each prompt.
        version: gradient steps of the weights.

    Raises:
        DatasetError: prompt and completion are longer than the model's context.
        ValueError: the generator returned another number of completions, an empty one, those of
            stale weights, or those of other sampling parameters.
    """
    _require_room(model, prompts, sampling)
    params = replace(sampling, seed=int(torch.randint(2**31, (), generator=stream)))
    generator.sync(model.module.named_parameters(), version)
    found = generator.generate([prompt.tolist() for prompt in prompts], n, params)
    _require_as_asked(found, len(prompts) * n, params, version)
    tokens, lengths = padded_tokens(found.token_ids, model.device)
    eos = torch.tensor(params.eos, dtype=torch.long, device=model.device)
    places = torch.arange(tokens.shape[1], device=model.device)
    ends = torch.isin(tokens, eos) & (places < lengths[:, None])
    mask = (ends.long().cumsum(1) - ends.long() == 0) & (places < lengths[:, None])
    ended = ends.any(1) if params.eos else torch.ones(len(tokens), dtype=torch.bool)
    logps = None
    if found.logprobs is not None:
        logps = torch.zeros(tokens.shape)
        for row, values in zip(logps, found.logprobs, strict=True):
            row[: len(values)] = torch.tensor(values)
        logps = logps.to(model.device).masked_fill(~mask, 0.0)
    rows = [prompt for prompt in prompts for _ in range(n)]
    return Completions(rows, tokens, mask, logps, ended.to(model.device), params, version)


def require_engine_options(config: GRPOConfig) -> None:
    """Refuse options that do not go with completions sampled outside this process.

    Raises:
        ConfigError: they do not.
    """
    if config.top_k or config.top_p < 1 or config.min_p:
        raise ConfigError(
            "an engine's log-probabilities are those of the tokens that top_k, top_p and min_p "
            "leave, and no ratio to the model's can be taken; leave them out"
        )
    if config.loss_type == "vespo":
        raise ConfigError(
            "loss_type='vespo' has no weights for completions of an engine; take 'dapo'"
        )


def _require_room(model: CausalModel, prompts: Sequence[Tensor], sampling: Sampling) -> None:
    longest = max(len(prompt) for prompt in prompts)
    if model.context is not None and longest + sampling.max_new_tokens > model.context:
        raise DatasetError(
            f"a prompt of {longest} tokens and max_new_tokens={sampling.max_new_tokens} pass the "
            f"context of the {model.name}, {model.context} tokens; shorten one of them"
        )


def _require_as_asked(found: Rollouts, n: int, params: Sampling, version: int) -> None:
    if len(found.token_ids) != n:
        raise ValueError(f"the generator must return {n} completions, got {len(found.token_ids)}")
    for i, row in enumerate(found.token_ids):
        if not row:
            raise ValueError(f"completion {i} of the generator is empty; an EOS belongs to it")
        if found.logprobs is not None and len(found.logprobs[i]) != len(row):
            raise ValueError(
                f"completion {i} of the generator has {len(row)} tokens and "
                f"{len(found.logprobs[i])} log-probabilities"
            )
    for name in ("temperature", "top_k", "top_p", "min_p", "greedy"):
        asked, got = getattr(params, name), getattr(found.params, name)
        if asked != got:
            raise ValueError(
                f"the generator sampled with {name}={got}, expected {asked}; what is learnt would "
                "be of other probabilities"
            )
    if found.version != version:
        raise ValueError(
            f"the generator has the weights of gradient step {found.version}, expected those of "
            f"{version}; its sync(named_parameters, version) must take them"
        )
