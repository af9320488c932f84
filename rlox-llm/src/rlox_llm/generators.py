"""Samplers in this process: rlox's, the model's own, and transformers'."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any

import torch
from rlox.errors import ConfigError
from torch import Tensor

from rlox_llm.building import is_adapted
from rlox_llm.generation import Generator, Rollouts, Sampled, Sampling
from rlox_llm.graphs import GraphDecoder
from rlox_llm.layouts import prefill
from rlox_llm.models import CausalModel
from rlox_llm.prompts import padded_prompts


def make_generator(sampler: str, model: CausalModel) -> Generator:
    """Return the sampler of the option ``sampler``.

    Raises:
        ConfigError: the model has no suitable ``generate``.
    """
    if sampler == "model" and not model.generates:
        raise ConfigError(
            f"sampler='model' needs a generate(prompt_ids, max_new_tokens), which the "
            f"{type(model.module).__name__} does not define; leave it at 'auto'"
        )
    if sampler == "transformers":
        if not (model.takes_cache and hasattr(model.module, "generate")):
            raise ConfigError(
                f"sampler='transformers' needs a model of transformers, got "
                f"{type(model.module).__name__}; leave it at 'auto'"
            )
        return TransformersGenerator(model)
    if sampler != "rlox" and model.generates:
        return ModelGenerator(model)
    return RloxGenerator(model)


class _InProcess:
    """A sampler with the trained model itself, whose weights need no copy."""

    in_process = True

    def __init__(self, model: CausalModel) -> None:
        self.model = model
        self.version = 0

    def sync(self, named_parameters: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Note the weights' version."""
        self.version = version

    def _rollouts(
        self, tokens: Tensor, lengths: Tensor, logps: Tensor | None, params: Sampling
    ) -> Rollouts:
        """Return rollouts of completions (N, T), cut after their first EOS."""
        ends = params.ends(tokens)
        after = (ends.long().cumsum(1) - ends.long() == 0).sum(1)
        counts = torch.minimum(lengths, after).tolist()
        rows = [row[:n] for row, n in zip(tokens.tolist(), counts, strict=True)]
        logprobs = None
        if logps is not None:
            logprobs = [row[:n] for row, n in zip(logps.tolist(), counts, strict=True)]
        return Rollouts(rows, logprobs, params, self.version)


class RloxGenerator(_InProcess):
    """Sampling by rlox, with its own random stream on the CPU.

    In a transformers model each prompt is processed once for all its completions, keys and values
    go into a static cache, and ended completions leave the batch; on a GPU a step is replayed as
    a CUDA graph, where they stay. Other models, and those with layers that do not see a whole row,
    get whole rows for each token, batched by the length of prompts.

    Args:
        model: the sampled model.
    """

    def __init__(self, model: CausalModel) -> None:
        super().__init__(model)
        self.graphs = GraphDecoder(model) if model.device.type == "cuda" else None

    @torch.no_grad()
    def generate(self, prompts: Sequence[Sequence[int]], n: int, params: Sampling) -> Rollouts:
        """Sample ``n`` completions of each prompt, without dropout."""
        device, t = self.model.device, params.max_new_tokens
        rows = [torch.tensor(list(prompt), device=device) for prompt in prompts]
        total = len(rows) * n
        uniform = torch.Generator().manual_seed(params.seed)
        draws = torch.rand(t, total, 1, generator=uniform, dtype=torch.float64).to(device)
        made = Sampled(
            params, draws, torch.zeros(total, t, dtype=torch.long, device=device),
            torch.zeros(total, t, device=device), torch.full((total,), t, device=device),
        )  # fmt: skip
        with self.model.mode(training=False):
            if not self.model.decodes_with_cache(max(len(row) for row in rows) + t):
                _decode_whole_rows(self.model, rows, n, made)
            elif self.graphs is None or not self.graphs.decode(rows, n, made):
                _decode(self.model, rows, n, made)
        return self._rollouts(made.tokens, made.lengths, made.logps, params)


def _decode(model: CausalModel, prompts: Sequence[Tensor], n: int, made: Sampled) -> None:
    """Sample completions token by token, with a cache of keys and values."""
    device, steps = made.tokens.device, made.tokens.shape[1]
    index = torch.arange(len(prompts), device=device).repeat_interleave(n)
    cache, seen, starts = prefill(model, prompts, index, steps)
    last = torch.stack([prompt[-1] for prompt in prompts])[index]
    alive = torch.arange(len(index), device=device)
    for step in range(steps):
        seen = torch.cat([seen, seen.new_ones(len(seen), 1)], 1)
        options: dict[str, Any] = {} if cache is None else {"past_key_values": cache}
        output = model.forward(
            last[:, None], seen, use_cache=True, position_ids=(starts + step)[:, None], **options
        )
        cache = output.past_key_values
        last, kept = made.take(step, alive, model.logits_of(output, last[:, None])[:, -1])
        if not len(kept):
            break
        if len(kept) < len(alive):
            alive, last, seen, starts = alive[kept], last[kept], seen[kept], starts[kept]
            cache.batch_select_indices(kept)


def _decode_whole_rows(
    model: CausalModel, prompts: Sequence[Tensor], n: int, made: Sampled
) -> None:
    """Sample completions with a pass over whole rows for each token."""
    options: dict[str, Any] = {"use_cache": False} if model.takes_cache else {}
    if model.keeps_logits:
        options["logits_to_keep"] = 1
    for indices in _by_length(prompts):
        alive = torch.tensor([i * n + k for i in indices for k in range(n)]).to(made.tokens.device)
        rows = torch.stack([prompts[i] for i in indices for _ in range(n)])
        for step in range(made.tokens.shape[1]):
            output = model.forward(rows, torch.ones_like(rows), **options)
            last, kept = made.take(step, alive, model.last_logits(output, rows, 1)[:, -1])
            if not len(kept):
                break
            rows, alive = torch.cat([rows, last[:, None]], 1)[kept], alive[kept]


def _by_length(prompts: Sequence[Sized]) -> list[list[int]]:
    """Return the indices of prompts, grouped by length."""
    found: dict[int, list[int]] = {}
    for i, prompt in enumerate(prompts):
        found.setdefault(len(prompt), []).append(i)
    return list(found.values())


class ModelGenerator(_InProcess):
    """Sampling by a model's own ``generate(prompt_ids, max_new_tokens)``.

    Only the sampling parameters ``max_new_tokens`` and ``eos`` apply. Torch's global generator is
    seeded before the call. Log-probabilities are not returned.

    Args:
        model: a model with that method.
    """

    @torch.no_grad()
    def generate(self, prompts: Sequence[Sequence[int]], n: int, params: Sampling) -> Rollouts:
        """Sample ``n`` completions of each prompt, batched by length."""
        device = self.model.device
        tokens = torch.zeros(len(prompts) * n, params.max_new_tokens, dtype=torch.long,
                             device=device)  # fmt: skip
        lengths = torch.zeros(len(tokens), dtype=torch.long, device=device)
        with self.model.mode(training=False), _seeded(params.seed):
            for indices in _by_length(prompts):
                ids = torch.tensor([list(prompts[i]) for i in indices], device=device)
                new = self._own(ids.repeat_interleave(n, 0), params)
                places = torch.tensor([i * n + k for i in indices for k in range(n)])
                tokens[places.to(device), : new.shape[1]] = new
                lengths[places.to(device)] = new.shape[1]
        return self._rollouts(tokens, lengths, None, params)

    def _own(self, ids: Tensor, params: Sampling) -> Tensor:
        """Return the new tokens (N, T)."""
        model, module = self.model, self.model.module
        generate: Any = module.generate
        n_tokens = params.max_new_tokens
        if "max_new_tokens" in inspect.signature(generate).parameters:
            rows = generate(ids, max_new_tokens=n_tokens)
        else:
            rows = generate(ids, n_tokens)
        if not isinstance(rows, Tensor) or rows.dim() != 2 or len(rows) != len(ids):
            found = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
            raise ValueError(
                f"generate of the {model.name} must return rows ({len(ids)}, prompt + new tokens), "
                f"got {found}"
            )
        length = ids.shape[1]
        if not torch.equal(rows[:, :length].to(ids), ids):
            raise ValueError(
                f"the rows that generate of the {model.name} returns must begin with the prompts"
            )
        if rows.shape[1] == length:
            raise ValueError(f"generate of the {model.name} returned no new tokens")
        return rows[:, length : length + n_tokens].long()


class TransformersGenerator(_InProcess):
    """Sampling by transformers' ``generate``, with prompts padded on the left.

    Args:
        model: a transformers model.
    """

    @torch.no_grad()
    def generate(self, prompts: Sequence[Sequence[int]], n: int, params: Sampling) -> Rollouts:
        """Sample ``n`` completions of each prompt, without dropout."""
        model = self.model
        pad = model.pad if model.pad is not None else (params.eos[0] if params.eos else 0)
        rows = [torch.tensor(list(prompt), device=model.device) for prompt in prompts]
        ids = padded_prompts(rows, pad)
        mask = padded_prompts([torch.ones_like(row) for row in rows], 0)
        how: dict[str, Any] = {"do_sample": False}
        if not params.greedy:
            how = {"do_sample": True, "temperature": params.temperature, "top_k": params.top_k,
                   "top_p": params.top_p, "min_p": params.min_p or None}  # fmt: skip
        module: Any = model.module
        with model.mode(training=False), _seeded(params.seed), _neutral(module):
            output = module.generate(
                input_ids=ids.repeat_interleave(n, 0), attention_mask=mask.repeat_interleave(n, 0),
                max_new_tokens=params.max_new_tokens, eos_token_id=list(params.eos) or None,
                pad_token_id=pad, return_dict_in_generate=True, output_logits=True, **how,
            )  # fmt: skip
        tokens = output.sequences[:, ids.shape[1] :]
        logits = torch.stack(output.logits, 1).float() / params.temperature
        logps = logits.log_softmax(2).gather(2, tokens[:, :, None]).squeeze(2)
        lengths = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
        return self._rollouts(tokens, lengths, logps, params)


@contextmanager
def _neutral(module: Any) -> Iterator[None]:
    """Let transformers' ``generate`` sample from the plain policy.

    A generation config may set penalties, beams, suppressed tokens and least lengths, which the
    arguments of ``generate`` do not override.
    """
    owners = [module, module.get_base_model()] if is_adapted(module) else [module]
    before = [owner.generation_config for owner in owners]
    try:
        for owner in owners:
            owner.generation_config = type(before[0])()
        yield
    finally:
        for owner, config in zip(owners, before, strict=True):
            owner.generation_config = config


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generator in the block, and restore it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
