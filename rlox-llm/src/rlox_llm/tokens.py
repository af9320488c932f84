"""Texts and chats as token ids, by a tokenizer of transformers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rlox.errors import ConfigError
from torch import Tensor

NOTHING_ADDED = {"add_special_tokens": False}


def _ends_of(ids: Sequence[int], ends: Collection[int]) -> int:
    """Return how many of the last tokens are such ends."""
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
    """Texts and chats in and out of token ids.

    Args:
        tokenizer: one of transformers; ``None`` has no texts.
        eos: the tokens that end a completion; the first of them is put behind completions that are
            given as text.
        filling: the token that rows of token ids are filled up with on either side, if their
            user has named one.
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
        """Return token ids (L,) without filling.

        Where it is an EOS too, the first behind a completion counts. Where it is the BOS too, the
        last before a prompt counts, as nothing tells the two apart. The row is empty if it holds
        nothing else.
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
        """Return the token ids of a text or chat; anything else as it is.

        A chat goes through the tokenizer's chat template, with the beginning of an answer. An EOS
        that the tokenizer puts behind every text is left out.

        Raises:
            ConfigError: there is no tokenizer, or a chat and no template.
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
        """Return the token ids of a completion, one EOS behind those of a text.

        Args:
            what: what errors call it.
            prompt: as it was given; a chat's completion is one or more messages, whose tokens are
                what they add to the chat.
            value: a text, messages, or token ids, which stay as they are.

        Raises:
            ConfigError: as of :meth:`prompt`, or the template writes another prompt beside them.
        """
        if is_chat(value):
            if not is_chat(prompt):
                raise ConfigError(f"{what} is a chat, so that its prompt must be one, got text")
            before = self._chat(what, prompt, add_generation_prompt=True)
            whole = self._chat(what, [*prompt, *value], add_generation_prompt=False)
            if whole[: len(before)] != before:
                raise ConfigError(
                    f"{what}: the chat template writes the prompt in another way when an answer "
                    "follows, so that their tokens cannot be parted"
                )
            ids = whole[len(before) :]
            # what a template writes behind the last EOS, such as a line's end, nobody samples
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
        ids: list[int] = tokenizer(text, **NOTHING_ADDED)["input_ids"]
        return ids

    def _required(self, what: str, kind: str) -> Any:
        if self.tokenizer is None:
            raise ConfigError(
                f"{what} needs a tokenizer, as {kind} is no token ids; pass tokenizer=, or a "
                "folder with one as the model"
            )
        return self.tokenizer
