"""Texts and chats as token ids, with a transformers tokenizer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rlox.errors import ConfigError
from torch import Tensor

NOTHING_ADDED = {"add_special_tokens": False}


def _ends_of(ids: Sequence[int], ends: Collection[int]) -> int:
    """Return the number of trailing tokens that are in ``ends``."""
    return next((n for n, token in enumerate(reversed(ids)) if token not in ends), len(ids))


def is_chat(value: Any) -> bool:
    """Return whether a value is a list of messages, ``{"role": ..., "content": ...}``."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and bool(value)
        and all(isinstance(message, Mapping) and "role" in message for message in value)
    )


class Texts:
    """Conversion between texts or chats and token ids.

    Args:
        tokenizer: a transformers tokenizer; ``None``: texts are refused.
        eos: the tokens that end a completion; the first one is appended to completions given as
            text.
        filling: the user's padding token, which may stand on either side of rows of token ids; or
            ``None``.
        bos: the token that a prompt may begin with.
    """

    def __init__(
        self,
        tokenizer: Any,
        eos: tuple[int, ...] = (),
        filling: int | None = None,
        bos: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.eos = eos
        self.filling = filling
        self.bos = bos

    def without_filling(self, row: Tensor, *, completion: bool) -> Tensor:
        """Return token ids (L,) without padding.

        If the padding token is also an EOS, the first one after a completion is kept. If it is
        also the BOS, the last one before a prompt is kept, because the two look the same. A row of
        padding alone becomes empty.
        """
        if self.filling is None:
            return row
        begins = not completion and self.filling == self.bos
        ends = completion and self.filling in self.eos
        kept = (row != self.filling).nonzero()
        if not len(kept):
            return row[: int(begins or ends)]
        return row[max(int(kept[0]) - begins, 0) : int(kept[-1]) + 1 + ends]

    def prompt(self, what: str, value: Any) -> Any:
        """Return the token ids of a text or chat; other values unchanged.

        A chat goes through the tokenizer's chat template, with the beginning of an answer. An EOS
        that the tokenizer appends to every text is removed.

        Raises:
            ConfigError: there is no tokenizer, or no template for a chat.
        """
        if is_chat(value):
            return self._chat(what, value, add_generation_prompt=True)
        if isinstance(value, str):
            tokenizer = self._required(what, "text")
            ends = {*self.eos, tokenizer.eos_token_id}
            ids, own = (tokenizer(value, **how)["input_ids"] for how in ({}, NOTHING_ADDED))
            added = _ends_of(ids, ends) - _ends_of(own, ends)
            return ids[: len(ids) - max(added, 0)]
        return value

    def completion(self, what: str, prompt: Any, value: Any) -> Any:
        """Return the token ids of a completion; texts get one EOS at the end.

        Args:
            what: its name in errors.
            prompt: the prompt as given; a chat's completion is one or more messages, and its tokens
                are those added to the chat.
            value: a text, messages, or token ids, which are returned unchanged.

        Raises:
            ConfigError: see :meth:`prompt`; or the template changes the prompt before an answer.
        """
        if is_chat(value):
            if not is_chat(prompt):
                raise ConfigError(f"{what} is a chat, so its prompt must be one, got text")
            before = self._chat(what, prompt, add_generation_prompt=True)
            whole = self._chat(what, [*prompt, *value], add_generation_prompt=False)
            if whole[: len(before)] != before:
                raise ConfigError(
                    f"{what}: the chat template writes the prompt differently before an answer, so "
                    "their tokens cannot be separated"
                )
            ids = whole[len(before) :]
            # tokens after the last EOS, such as a template's newline, are never sampled
            last = max((i for i, token in enumerate(ids) if token in self.eos), default=len(ids))
            return ids[: last + 1]
        if isinstance(value, str):
            ids = self._required(what, "text")(value, **NOTHING_ADDED)["input_ids"]
            return ids if _ends_of(ids, self.eos) else [*ids, *self.eos[:1]]
        return value

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens.

        Raises:
            ConfigError: there is no tokenizer.
        """
        tokenizer = self._required("texts of completions", "text")
        return str(tokenizer.decode(list(ids), skip_special_tokens=True))

    def _chat(self, what: str, messages: Any, *, add_generation_prompt: bool) -> list[int]:
        tokenizer = self._required(what, "a chat")
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(f"{what} is a chat, and the tokenizer has no chat_template; set one")
        text = tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=add_generation_prompt
        )
        # the template writes the special tokens itself
        return tokenizer(text, **NOTHING_ADDED)["input_ids"]  # type: ignore[no-any-return]

    def _required(self, what: str, kind: str) -> Any:
        if self.tokenizer is None:
            raise ConfigError(
                f"{what} needs a tokenizer, because it is {kind}; pass tokenizer=, or a model "
                "folder with a tokenizer"
            )
        return self.tokenizer
