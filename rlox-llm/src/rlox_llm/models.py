"""Causal language models as the algorithms use them: logits, log-probabilities, mode."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from rlox.errors import ConfigError
from torch import Tensor, nn

__all__ = ["CausalModel"]


class CausalModel:
    """A module with ``forward(input_ids) -> logits``, or one of transformers.

    Rows are filled up on the right, where tokens of a causal model do not see the filling: neither
    masks nor position ids are needed, and both kinds of model give the same numbers whatever else
    is in the batch.

    Args:
        module: the model.
        name: what errors call it.

    Raises:
        TypeError: it is no module.
        ConfigError: it has no parameters.
    """

    def __init__(self, module: nn.Module, name: str) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(f"{name} must be a torch.nn.Module, got {type(module).__name__}")
        first = next(module.parameters(), None)
        if first is None:
            raise ConfigError(f"{name} has no parameters")
        self.module = module
        self.name = name
        self.device = first.device
        names = inspect.signature(module.forward).parameters
        self.takes_mask = "attention_mask" in names
        self.takes_cache = {"past_key_values", "use_cache"} <= set(names)
        config: Any = getattr(module, "config", None)
        self.context: int | None = getattr(config, "max_position_embeddings", None)
        generation: Any = getattr(module, "generation_config", None)
        self.eos = _tuple(getattr(generation, "eos_token_id", None)) or _tuple(
            getattr(config, "eos_token_id", None)
        )
        self.pad: int | None = getattr(config, "pad_token_id", None)

    @property
    def generates(self) -> bool:
        """Whether it has a ``generate`` of its own, not that of transformers."""
        return callable(getattr(self.module, "generate", None)) and not self.takes_cache

    @contextmanager
    def mode(self, training: bool) -> Iterator[None]:
        """Switch dropout on or off in the block, and back after it."""
        before = {part: part.training for part in self.module.modules()}
        self.module.train(training)
        try:
            yield
        finally:
            for part, was in before.items():
                part.training = was

    def forward(self, ids: Tensor, mask: Tensor | None = None, **options: Any) -> Any:
        """Return what the module returns for token ids.

        Raises:
            ValueError: it cannot take one of the ids.
        """
        if self.takes_mask and mask is not None:
            options["attention_mask"] = mask.long()
        try:
            return self.module(ids, **options)
        except IndexError as error:
            raise ValueError(
                f"the {self.name} cannot take the token ids {int(ids.min())}..{int(ids.max())} of "
                f"{ids.shape[1]} positions: {error}; are they outside its vocabulary?"
            ) from error

    def logits_of(self, output: Any, ids: Tensor) -> Tensor:
        """Return the logits (B, L, V) of the module's output for ``ids`` (B, L).

        Raises:
            TypeError: there are none.
            ValueError: they have another shape.
        """
        logits = getattr(output, "logits", output)
        if not isinstance(logits, Tensor):
            raise TypeError(
                f"forward of the {self.name} must return logits or an object with .logits, got "
                f"{type(output).__name__}"
            )
        if logits.dim() != 3 or logits.shape[:2] != ids.shape:
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

    def logps(
        self, prompts: Sequence[Tensor], tokens: Tensor, mask: Tensor, temperature: float = 1.0
    ) -> Tensor:
        """Return the log-probabilities (B, T) of completions, 0 outside ``mask``.

        Args:
            prompts: B rows of token ids (P_i,), none of them empty.
            tokens: (B, T) their completions.
            mask: (B, T) True at the tokens of the completions, which come first.
            temperature: what logits are divided by.
        """
        ids, rows_mask, starts = join(prompts, tokens, mask)
        options = {"use_cache": False} if self.takes_cache else {}
        logits = self.logits_of(self.forward(ids, rows_mask, **options), ids)
        places = starts[:, None] - 1 + torch.arange(tokens.shape[1], device=ids.device)
        places = places.clamp(max=ids.shape[1] - 1)
        rows = torch.arange(len(ids), device=ids.device)[:, None]
        chosen = logits[rows, places] / temperature
        picked = chosen.gather(2, tokens.masked_fill(~mask, 0)[:, :, None]).squeeze(2)
        return (picked - chosen.logsumexp(2)).masked_fill(~mask, 0.0)


def join(prompts: Sequence[Tensor], tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows of prompt and completion, filled up on the right.

    Returns:
        Token ids (B, L), the mask (B, L) of what is no filling, and the lengths (B,) of the
        prompts.
    """
    starts = torch.tensor([len(prompt) for prompt in prompts], device=tokens.device)
    lengths = starts + mask.sum(1)
    width = int(lengths.max())
    ids = torch.zeros(len(tokens), width, dtype=torch.long, device=tokens.device)
    for row, prompt, completion, kept in zip(ids, prompts, tokens, mask, strict=True):
        kept_tokens = completion[kept]
        row[: len(prompt)] = prompt
        row[len(prompt) : len(prompt) + len(kept_tokens)] = kept_tokens
    return ids, torch.arange(width, device=tokens.device) < lengths[:, None], starts


def _tuple(ids: Any) -> tuple[int, ...]:
    if ids is None:
        return ()
    return (int(ids),) if isinstance(ids, int) else tuple(int(i) for i in ids)
