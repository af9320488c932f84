"""Texts and chats as token ids, by a tokenizer of transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlox.errors import ConfigError

__all__ = ["Texts", "is_chat"]


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
    """

    def __init__(self, tokenizer: Any, eos: tuple[int, ...] = ()) -> None:
        self.tokenizer = tokenizer
        self.eos = eos

    def prompt(self, what: str, value: Any) -> Any:
        """Return the token ids of a text or chat; anything else as it is.

        A chat goes through the tokenizer's chat template, with the beginning of an answer.

        Raises:
            ConfigError: there is no tokenizer, or a chat and no template.
        """
        if is_chat(value):
            return self._chat(what, value, add_generation_prompt=True)
        if isinstance(value, str):
            return self._required(what, "text")(value)["input_ids"]
        return value

    def completion(self, what: str, prompt: Any, value: Any) -> Any:
        """Return the token ids of a completion, an EOS behind those of a text.

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
            return whole[len(before) :]
        if isinstance(value, str):
            ids = self._required(what, "text")(value, add_special_tokens=False)["input_ids"]
            return [*ids, *self.eos[:1]]
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
        ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _required(self, what: str, kind: str) -> Any:
        if self.tokenizer is None:
            raise ConfigError(
                f"{what} needs a tokenizer, as {kind} is no token ids; pass tokenizer=, or a "
                "folder with one as the model"
            )
        return self.tokenizer
