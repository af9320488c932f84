"""Tables of sampled completions for loggers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlox.training.hooks import Hooks

from rlox_llm.configs import SamplingConfig
from rlox_llm.sampling import Completions
from rlox_llm.tokens import Texts

__all__ = ["completions_table", "log_completions"]


def log_completions(
    hooks: Hooks,
    config: SamplingConfig,
    texts: Texts,
    done: Completions,
    columns: Mapping[str, Sequence[Any]],
) -> None:
    """Hand completions to the logger as the table ``completions``, with ``log_completions`` on.

    Args:
        hooks: of the iteration.
        config: says whether, and how many.
        texts: turns token ids into texts.
        done: N completions.
        columns: further columns of N values, by name.
    """
    if config.log_completions:
        n_rows = config.num_completions_to_print
        hooks.table("completions", completions_table(done, texts, columns, n_rows))


def completions_table(
    done: Completions, texts: Texts, columns: Mapping[str, Sequence[Any]], n_rows: int | None = None
) -> dict[str, list[Any]]:
    """Return completions as a table: as texts if there is a tokenizer, else as token ids.

    Args:
        done: N completions.
        texts: turns token ids into texts.
        columns: further columns of N values, by name.
        n_rows: the first so many completions; ``None``: all.
    """

    def read(ids: list[int]) -> str:
        return " ".join(map(str, ids)) if texts.tokenizer is None else texts.text(ids)

    rows = list(zip(done.prompts, done.tokens, done.mask, strict=True))[:n_rows]
    return {
        "prompt": [read(prompt.tolist()) for prompt, _, _ in rows],
        "completion": [read(tokens[mask].tolist()) for _, tokens, mask in rows],
        **{name: list(values)[:n_rows] for name, values in columns.items()},
    }
