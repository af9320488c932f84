"""Layouts of prompts and completions in a forward pass, and static caches for sampling.

Each layout's function returns the logits (N, T, V) from which the T tokens of N completions were
drawn. They agree to rounding but differ in cost:

    padded          N rows of P + T tokens, padded on the right
    shared_prefix   each prompt once, and N rows of T tokens that attend to its keys and values
    packed          rows concatenated into the fewest possible long rows, without padding
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import rlox
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

SHORTER = 3
"""Factor by which two passes must have fewer tokens than one, to be faster on a GPU."""


class Forwards(Protocol):
    """The parts of a :class:`rlox_llm.models.CausalModel` that forward passes use."""

    module: nn.Module
    bf16: bool
    takes_cache: bool
    keeps_logits: bool

    def forward(self, ids: Tensor, mask: Tensor | None = None, **options: Any) -> Any:
        """Return the module's output."""

    def logits_of(self, output: Any, ids: Tensor, kept: int | None = None) -> Tensor:
        """Return the logits of an output."""

    def last_logits(self, output: Any, ids: Tensor, kept: int) -> Tensor:
        """Return the logits of the last positions."""


def padded(model: Forwards, prompts: Sequence[Tensor], tokens: Tensor, mask: Tensor) -> Tensor:
    """Return the logits with one row per completion."""
    ids, rows_mask, starts = _join(prompts, tokens, mask)
    options: dict[str, Any] = {"use_cache": False} if model.takes_cache else {}
    before = min(len(prompt) for prompt in prompts) - 1
    if model.keeps_logits:
        options["logits_to_keep"] = ids.shape[1] - before
    output = model.forward(ids, rows_mask, **options)
    logits = model.last_logits(output, ids, ids.shape[1] - before)
    places = (starts - 1 - before)[:, None] + torch.arange(tokens.shape[1], device=ids.device)
    rows = torch.arange(len(ids), device=ids.device)[:, None]
    return logits[rows, places.clamp(max=logits.shape[1] - 1)]


def prefill(
    model: Forwards,
    prompts: Sequence[Tensor],
    index: Tensor,
    room: int | None = None,
    *,
    width: int = 0,
) -> tuple[Any, Tensor, Tensor]:
    """Run each prompt without its last token, and return the cache for N completions.

    Args:
        model: a transformers model.
        prompts: rows of token ids.
        index: (N,) the prompt of each completion.
        room: maximum number of tokens to add, for a static cache without gradients; ``None``: the
            cache grows.
        width: least P - 1, padded behind the prompts.

    Returns:
        The cache of N rows, ``None`` if it would be empty; the mask (N, P - 1) of its positions
        that hold a token; and the position (N,) of each prompt's last token.
    """
    longest = max(len(prompt) for prompt in prompts) - 1
    width = max(width, longest)
    ids = torch.zeros(len(prompts), width, dtype=torch.long, device=index.device)
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt) - 1] = prompt[:-1]
    lengths = torch.tensor([len(prompt) - 1 for prompt in prompts], device=index.device)
    places = torch.arange(width, device=index.device)
    seen = places < lengths[:, None]
    if width == 0:
        return None, seen[index], lengths[index]
    kept = {"logits_to_keep": 1} if model.keeps_logits else {}
    # an empty prefix attends to one dummy position here, which is masked later
    output = model.forward(
        ids, places < lengths.clamp(min=1)[:, None], use_cache=True,
        position_ids=places.clamp(max=max(longest - 1, 0)).expand_as(ids), **kept,
    )  # fmt: skip
    cache = output.past_key_values
    if room is None:
        cache.batch_select_indices(index)
    else:
        _with_room(cache, index, room)
    return cache, seen[index], lengths[index]


def shared_prefix(
    model: Forwards, prompts: Sequence[Tensor], tokens: Tensor, mask: Tensor
) -> Tensor:
    """Return the logits with one pass over the prompts and one over the completions.

    Gradients flow through the keys and values of the prompts. The prefix is a prompt without its
    last token, which begins the row of each completion, so that the prefix needs no logits.
    """
    device = tokens.device
    unique = {id(prompt): prompt for prompt in prompts}
    place = {key: i for i, key in enumerate(unique)}
    index = torch.tensor([place[id(prompt)] for prompt in prompts], device=device)
    cache, seen, starts = prefill(model, list(unique.values()), index)
    last = torch.stack([prompt[-1] for prompt in prompts])[:, None]
    rows = torch.cat([last, tokens.masked_fill(~mask, 0)[:, :-1]], 1)
    shown = torch.cat([seen, torch.ones_like(mask[:, :1]), mask[:, :-1]], 1)
    options: dict[str, Any] = {"use_cache": False}
    if cache is not None:
        options = {"use_cache": True, "past_key_values": cache}
    positions = starts[:, None] + torch.arange(rows.shape[1], device=device)
    output = model.forward(rows, shown, position_ids=positions, **options)
    return model.logits_of(output, rows)


def sharing_pays(prompts: Sequence[Tensor], tokens: Tensor) -> bool:
    """Return whether :func:`shared_prefix` is faster than :func:`padded`.

    On a CPU it is faster if completions share a prompt. On a GPU, starting kernels dominates a pass
    of few tokens.
    """
    unique = {id(prompt): len(prompt) for prompt in prompts}
    if len(unique) == len(prompts) or tokens.device.type == "cpu":
        return len(unique) < len(prompts)
    whole = sum(len(prompt) for prompt in prompts) + tokens.numel()
    return whole >= SHORTER * (sum(unique.values()) + tokens.numel())


def packed(model: Forwards, prompts: Sequence[Tensor], tokens: Tensor, mask: Tensor) -> Tensor:
    """Return the logits with rows that hold several prompts and completions."""
    device = tokens.device
    rows = [torch.cat([p, t[m]]) for p, t, m in zip(prompts, tokens, mask, strict=True)]
    bins = rlox.pack_sequences([row.numpy(force=True) for row in rows], max(map(len, rows)))
    ids = torch.from_numpy(bins.packed).to(device)
    positions = torch.from_numpy(bins.positions).to(device)
    width = ids.shape[1]
    owner = torch.full(ids.shape, -1, dtype=torch.long, device=device)
    where = torch.zeros(len(rows), 2, dtype=torch.long, device=device)
    ends = np.zeros(len(ids), np.int64)
    for r, i in zip(bins.rows.tolist(), bins.indices.tolist(), strict=True):
        start, ends[r] = int(ends[r]), ends[r] + len(rows[i])
        owner[r, start : int(ends[r])] = i
        where[i] = torch.tensor([r, start + len(prompts[i]) - 1], device=device)
    causal = torch.ones(width, width, dtype=torch.bool, device=device).tril()
    sees = (owner[:, :, None] == owner[:, None, :]) & causal
    dtype = torch.bfloat16 if model.bf16 else next(model.module.parameters()).dtype
    blocked = torch.zeros(sees.shape, dtype=dtype, device=device)
    blocked = blocked.masked_fill(~sees, torch.finfo(dtype).min)[:, None]
    output = model.forward(ids, blocked, position_ids=positions, use_cache=False)
    logits = model.logits_of(output, ids)
    places = where[:, 1:] + torch.arange(tokens.shape[1], device=device)
    return logits[where[:, :1], places.clamp(max=width - 1)]


def _join(prompts: Sequence[Tensor], tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows of prompt and completion, padded on the right.

    Returns:
        Token ids (N, L), the mask (N, L) of real tokens, and the lengths (N,) of the prompts.
    """
    starts = torch.tensor([len(prompt) for prompt in prompts], device=tokens.device)
    ids = pad_sequence(list(prompts), batch_first=True)
    ids = torch.cat([ids, torch.zeros_like(tokens)], 1)
    places = starts[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
    ids.scatter_(1, places, tokens.masked_fill(~mask, 0))
    lengths = starts + mask.sum(1)
    width = int(lengths.max())
    return ids[:, :width], torch.arange(width, device=tokens.device) < lengths[:, None], starts


def _with_room(found: Any, index: Tensor, room: int) -> None:
    """Repeat the rows of a cache, and let its layers append tokens without copying.

    Layers that keep all keys get tensors with room for the new tokens; others, such as those of
    sliding windows, keep their class.

    Args:
        found: a transformers cache with P rows, changed in place.
        index: (N,) the source row of each new row.
        room: maximum number of tokens to add.
    """
    dynamic, static = _classes()
    for place, layer in enumerate(found.layers):
        if type(layer) is dynamic and layer.get_seq_length() > 0:
            found.layers[place] = static(layer, index, room)
        else:
            layer.batch_select_indices(index)


def fixed_layers(found: Any) -> list[Any]:
    """Return the layers of a cache with room, if all can be fixed in size.

    Raises:
        NotImplementedError: a layer has another class.
    """
    for layer in found.layers:
        if type(layer) is not _classes()[1]:
            raise NotImplementedError(f"its cache has a {type(layer).__name__}")
    return list(found.layers)


@functools.cache
def _classes() -> tuple[type[Any], type[Any]]:
    """Return the classes of layers that grow by copying and of layers with room."""
    base: Any = importlib.import_module("transformers.cache_utils").DynamicLayer

    class StaticLayer(base):  # type: ignore[misc]
        """Keys and values at the beginning of tensors with room for more."""

        place: Tensor | None
        """Position of the next token while the layer shows all of its room at fixed addresses."""

        def __init__(self, layer: Any, index: Tensor, room: int) -> None:
            # copy an initialised layer's state: constructor arguments differ by version
            self.__dict__.update(layer.__dict__)
            self.place = None
            self._keys, self._values = (_enlarged(x, index, room)
                                        for x in (layer.keys, layer.values))  # fmt: skip
            self._show(layer.keys.shape[2])

        def _show(self, length: int) -> None:
            self.keys, self.values = self._keys[:, :, :length], self._values[:, :, :length]

        def update(
            self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
        ) -> tuple[Tensor, Tensor]:
            if self.place is not None:
                self._keys.index_copy_(2, self.place, key_states.to(self._keys.dtype))
                self._values.index_copy_(2, self.place, value_states.to(self._values.dtype))
                return self.keys, self.values
            start, end = self.keys.shape[2], self.keys.shape[2] + key_states.shape[2]
            self._keys[:, :, start:end] = key_states
            self._values[:, :, start:end] = value_states
            self._show(end)
            return self.keys, self.values

        def fix(self, place: Tensor) -> None:
            """Show all of the room from now on, and write tokens at ``place`` (1,)."""
            if self.place is None:  # masked values are multiplied by 0, and must not be NaN
                for room in (self._keys, self._values):
                    room[:, :, self.keys.shape[2] :] = 0
            self.place = place
            self._show(self._keys.shape[2])

        def refill(self, layer: Any, index: Tensor) -> None:
            """Copy the rows of another layer at ``index``, as in the constructor."""
            length = layer.keys.shape[2]
            self._keys[:, :, :length] = layer.keys[index]
            self._values[:, :, :length] = layer.values[index]

        def batch_select_indices(self, indices: Tensor) -> None:
            length = self.keys.shape[2]
            self._keys, self._values = self._keys[indices], self._values[indices]
            self._show(length)

    return base, StaticLayer


def _enlarged(values: Tensor, index: Tensor, room: int) -> Tensor:
    """Return rows (N, H, L + room, D) that begin with those of (P, H, L, D) at ``index``."""
    _, heads, length, size = values.shape
    made = values.new_empty(len(index), heads, length + room, size)
    made[:, :, :length] = values[index]
    return made
