"""Causal language models for the algorithms: logits, log-probabilities, mode."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from rlox.errors import ConfigError, DatasetError
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rlox_llm.layouts import packed, padded, shared_prefix, sharing_pays

UNLIMITED = ("full_attention", "attention", "moe", "sparse", "dense")
"""Kinds of layers that see the whole row, or only a single token."""


@dataclass(frozen=True)
class Scores:
    """A model's scores of completions' tokens, 0 outside their mask."""

    logps: Tensor
    """(N, T) log-probabilities in nats."""
    entropies: Tensor | None
    """(N, T) entropies of the tokens' distributions, if requested."""
    likeliest: Tensor | None = None
    """(N, T) whether no other token is likelier in its position, if requested."""


class CausalModel:
    """A module with ``forward(input_ids) -> logits``, or a transformers model.

    Rows are padded on the right, where a causal model's tokens do not see the padding, and position
    ids count from each row's first token. So both kinds of model give numbers that do not depend on
    other rows of the batch.

    Args:
        module: the model.
        name: its name in errors.
        adapter_off: switch the module's LoRA adapter off whenever it runs.
        bf16: run it in bfloat16; log-probabilities are float32 all the same.
        layout: form of rows, see :mod:`rlox_llm.layouts`.

    Raises:
        TypeError: ``module`` is not a torch module.
        ConfigError: it has no parameters, or does not support the layout.
    """

    def __init__(
        self,
        module: nn.Module,
        name: str,
        *,
        adapter_off: bool = False,
        bf16: bool = False,
        layout: str = "auto",
    ) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(f"{name} must be a torch.nn.Module, got {type(module).__name__}")
        first = next(module.parameters(), None)
        if first is None:
            raise ConfigError(f"{name} has no parameters")
        self.module = module
        self.name = name
        self.device = first.device
        self.adapter_off = adapter_off
        self.bf16 = bf16
        outer: Any = module
        inner = outer.get_base_model() if hasattr(module, "get_base_model") else outer
        names = inspect.signature(inner.forward).parameters
        self.takes_mask = "attention_mask" in names
        self.takes_positions = "position_ids" in names
        self.takes_cache = {"past_key_values", "use_cache"} <= set(names)
        self.keeps_logits = "logits_to_keep" in names
        generate = getattr(inner, "generate", None)
        of_transformers = str(getattr(generate, "__module__", "")).startswith("transformers.")
        self.generates = callable(generate) and not self.takes_cache and not of_transformers
        """Whether it has its own ``generate``, not that of transformers."""
        config: Any = _text_config(module)
        self.context: int | None = getattr(config, "max_position_embeddings", None)
        generation: Any = getattr(module, "generation_config", None)
        self.eos = _tuple(getattr(generation, "eos_token_id", None)) or _tuple(
            getattr(config, "eos_token_id", None)
        )
        self.pad: int | None = getattr(config, "pad_token_id", None)
        self.bos: int | None = getattr(config, "bos_token_id", None)
        self.vocabulary = _vocabulary(inner)
        """Size of the vocabulary; ``None`` if only the forward pass shows it."""
        self._aware = self.takes_mask and self.takes_positions and self.takes_cache
        if layout not in ("auto", "padded") and not self._aware:
            raise ConfigError(
                f"layout='{layout}' needs a causal model of transformers, got "
                f"{type(module).__name__}; leave it at 'auto'"
            )
        self._reach = reach = _limited_reach(module)
        if reach and layout not in ("auto", "padded") and not self.sees_all_of(self.context):
            raise ConfigError(
                f"layout='{layout}' does not fit {type(module).__name__}, whose layers of the kind "
                f"'{reach.kind}' do not see whole rows; leave it at 'auto'"
            )
        recomputes = any(getattr(p, "gradient_checkpointing", False) for p in module.modules())
        keeps_cache = self._aware and not recomputes
        self.layout = layout if keeps_cache or layout == "padded" else "padded"

    def sees_all_of(self, n_tokens: int | None) -> bool:
        """Return whether every layer sees all of a row of ``n_tokens``; ``None``: of any length.

        If not, padding in a cache changes a layer's view, and rows are processed whole.
        """
        return self._reach is None or (n_tokens is not None and n_tokens <= self._reach.tokens)

    def decodes_with_cache(self, n_tokens: int) -> bool:
        """Return whether sampling rows of up to ``n_tokens`` may keep keys and values."""
        return self._aware and self.sees_all_of(n_tokens)

    @contextmanager
    def mode(self, training: bool) -> Iterator[None]:
        """Switch dropout on or off in the block, and back after it."""
        before = {part: part.training for part in self.module.modules()}
        self.module.train(training)
        # transformers' layers recompute only in training mode, which disables the sampling cache
        for part in before if torch.is_grad_enabled() else ():
            if getattr(part, "gradient_checkpointing", False):
                part.training = True
        try:
            yield
        finally:
            for part, was in before.items():
                part.training = was

    def checkpoint_gradients(self) -> None:
        """Recompute all layers' activations in the backward pass instead of keeping them.

        Raises:
            ConfigError: it is not a transformers model.
        """
        module: Any = self.module
        for name in ("activation_checkpointing_enable", "gradient_checkpointing_enable"):
            enable = getattr(module, name, None)  # the first name since transformers 5.23
            if enable is not None:
                enable(**{name.replace("enable", "kwargs"): {"use_reentrant": False}})
                break
        else:
            raise ConfigError(
                f"gradient_checkpointing needs a model of transformers, got "
                f"{type(module).__name__}; checkpoint in its forward, and leave the option out"
            )
        self.layout = "padded"  # a cache would keep tensors that are to be recomputed

    def forward(self, ids: Tensor, mask: Tensor | None = None, **options: Any) -> Any:
        """Return the module's output for token ids.

        Raises:
            ValueError: an id is outside the module's range.
        """
        if self.takes_mask and mask is not None:
            options["attention_mask"] = mask.long() if mask.dim() == 2 else mask
        module: Any = self.module
        adapter = module.disable_adapter() if self.adapter_off else nullcontext()
        precision = torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16)
        try:
            with adapter, precision:
                return module(ids, **options)
        except IndexError as error:
            raise ValueError(
                f"the {self.name} cannot take the token ids {int(ids.min())}..{int(ids.max())} of "
                f"{ids.shape[1]} positions: {error}; are they outside its vocabulary?"
            ) from error

    def logits_of(self, output: Any, ids: Tensor, kept: int | None = None) -> Tensor:
        """Return the logits of the module's output for ``ids`` (B, L).

        Args:
            output: result of :meth:`forward`.
            ids: (B, L)
            kept: number of last positions that the output holds; ``None``: all.

        Returns:
            (B, ``kept``, V), at least in float32.

        Raises:
            TypeError: the output has no logits.
            ValueError: the logits have another shape.
        """
        logits = getattr(output, "logits", output)
        if not isinstance(logits, Tensor):
            raise TypeError(
                f"forward of the {self.name} must return logits or an object with .logits, got "
                f"{type(output).__name__}"
            )
        length = ids.shape[1] if kept is None else kept
        if logits.dim() != 3 or logits.shape[:2] != (len(ids), length):
            raise ValueError(
                f"forward of the {self.name} must return logits (B, L, V) for ids "
                f"{tuple(ids.shape)}, got {tuple(logits.shape)}"
            )
        if logits.shape[2] <= int(ids.max()):
            raise ValueError(
                f"token id {int(ids.max())} lies outside the vocabulary of the {self.name}, which "
                f"has {logits.shape[2]} tokens"
            )
        return logits if logits.dtype == torch.float64 else logits.float()

    def last_logits(self, output: Any, ids: Tensor, kept: int) -> Tensor:
        """Return the logits (B, ``kept``, V) of the last positions; see :meth:`logits_of`."""
        if self.keeps_logits:
            return self.logits_of(output, ids, kept)
        return self.logits_of(output, ids)[:, -kept:]

    def logps(
        self, prompts: Sequence[Tensor], tokens: Tensor, mask: Tensor, temperature: float = 1.0
    ) -> Tensor:
        """Return the log-probabilities (N, T) of completions; see :meth:`score`."""
        return self.score(prompts, tokens, mask, temperature).logps

    def score(
        self,
        prompts: Sequence[Tensor],
        tokens: Tensor,
        mask: Tensor,
        temperature: float = 1.0,
        *,
        entropies: bool = False,
        likeliest: bool = False,
    ) -> Scores:
        """Return the log-probabilities of completions.

        Args:
            prompts: N rows of token ids (P_i,), none of them empty; completions of one prompt
                share one tensor.
            tokens: (N, T) their completions.
            mask: (N, T) True at the tokens of the completions, which come first.
            temperature: divisor of logits.
            entropies: whether to return entropies.
            likeliest: whether to return which tokens are the likeliest.

        Raises:
            DatasetError: a row is longer than the model's context.
        """
        longest = max(len(prompt) for prompt in prompts) + mask.shape[1]
        self._require_room(prompts, mask)
        shares = (
            self.layout == "auto" and self.sees_all_of(longest) and sharing_pays(prompts, tokens)
        )
        if self.layout == "packed":
            logits = packed(self, prompts, tokens, mask)
        elif self.layout == "shared_prefix" or shares:
            logits = shared_prefix(self, prompts, tokens, mask)
        else:
            logits = padded(self, prompts, tokens, mask)
        logits = logits if temperature == 1 else logits / temperature
        chosen = tokens.masked_fill(~mask, 0)
        logps = -cross_entropy(logits.flatten(0, 1), chosen.flatten(), reduction="none")
        found = None
        if entropies:
            all_logps = logits.log_softmax(2)
            found = -(all_logps.exp() * all_logps).sum(2).masked_fill(~mask, 0.0)
        best = None
        if likeliest:
            picked = logits.detach().gather(2, chosen[:, :, None]).squeeze(2)
            best = mask & (picked >= logits.detach().amax(2))
        logps = logps.view_as(tokens).masked_fill(~mask, 0.0)
        return Scores(logps, found, best)

    def _require_room(self, prompts: Sequence[Tensor], mask: Tensor) -> None:
        if self.context is None:
            return
        if max(len(prompt) for prompt in prompts) + mask.shape[1] <= self.context:
            return  # fits with any mask; its sums would have to be fetched from the device
        lengths = zip(prompts, mask.sum(1).tolist(), strict=True)
        longest = max(len(prompt) + n for prompt, n in lengths)
        if longest > self.context:
            raise DatasetError(
                f"a prompt with its completion has {longest} tokens, which pass the context of the "
                f"{self.name}, {self.context} tokens; shorten it"
            )


def _vocabulary(module: Any) -> int | None:
    try:
        return getattr(module.get_input_embeddings(), "num_embeddings", None)
    except (AttributeError, NotImplementedError):  # not transformers', or without an embedding
        return None


def _tuple(ids: Any) -> tuple[int, ...]:
    if ids is None:
        return ()
    return (int(ids),) if isinstance(ids, int) else tuple(int(i) for i in ids)


@dataclass(frozen=True)
class _Reach:
    """Shortest view among a model's layers.

    With padding in a cache such a layer sees other tokens than without, so rows longer than the
    reach are processed whole.
    """

    kind: str
    """The layer's kind in transformers."""
    tokens: int
    """Longest row that the layer sees completely; 0 for layers with a state."""


def _limited_reach(module: Any) -> _Reach | None:
    """Return the shortest reach of a model's layers, ``None`` if all of them see whole rows.

    Args:
        module: a model; only those with a transformers config can have layers of limited reach.
    """
    config: Any = _text_config(module)
    if not hasattr(config, "get_text_config"):
        return None
    window = getattr(config, "sliding_window", None)
    if not getattr(config, "use_sliding_window", True):
        window = None
    windows = {
        "sliding_attention": window,
        "chunked_attention": getattr(config, "attention_chunk_size", None),
        "local": getattr(config, "window_size", None),
    }
    kinds = list(getattr(config, "layer_types", None) or ())
    if not kinds:
        kinds = [kind for kind in ("sliding_attention", "chunked_attention") if windows[kind]]
    if "local" in (getattr(config, "attention_layers", None) or ()):  # GPT-Neo
        kinds.append("local")
    if getattr(module, "_is_stateful", False):
        kinds.append("recurrent state")
    found = [_Reach(kind, windows.get(kind) or 0) for kind in kinds if kind not in UNLIMITED]
    return min(found, key=lambda reach: reach.tokens, default=None)


def _text_config(module: Any) -> Any:
    """Return the config of a model's language part; configs other than transformers' unchanged."""
    config = getattr(module, "config", None)
    find = getattr(config, "get_text_config", None)
    return config if find is None else find(decoder=True)
