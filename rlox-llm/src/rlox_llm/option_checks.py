"""Checks of options of language models that go together."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from rlox.config.model import require_integer

__all__ = [
    "parse_duration",
    "require_logged_completions",
    "require_lora_rank",
    "take_name_of_trl",
]


def parse_duration(
    rows: Any, n_epochs: int | None, n_gradient_steps: int | None
) -> tuple[Any, int | None, int | None]:
    """Return rows to train on, epochs and gradient steps, as ``train`` was asked for.

    Args:
        rows: what was passed first, rows or a number of gradient steps.
        n_epochs: how often each row is taken.
        n_gradient_steps: the number of gradient steps by name.

    Raises:
        TypeError: a number of gradient steps is given twice, or with rows or epochs.
        ValueError: a number is not positive.
    """
    if isinstance(rows, Integral):
        if n_gradient_steps is not None:
            raise TypeError("the number of gradient steps is given twice; leave one out")
        n_gradient_steps = require_integer("n_gradient_steps", rows, at_least=1)
        rows = None
    if n_gradient_steps is not None and (rows is not None or n_epochs is not None):
        raise TypeError(
            f"n_gradient_steps={n_gradient_steps} is for the constructor's dataset, and goes "
            "with neither rows to train on nor n_epochs=; leave one out"
        )
    if n_epochs is not None or rows is not None:
        n_epochs = require_integer("n_epochs", 1 if n_epochs is None else n_epochs, at_least=1)
    return rows, n_epochs, n_gradient_steps


def take_name_of_trl(values: dict[str, Any]) -> dict[str, Any]:
    """Return options with TRL's ``max_completion_length`` under the name ``max_new_tokens``.

    Raises:
        ValueError: both are given, and differ.
    """
    if "max_completion_length" not in values:
        return values
    length = values["max_completion_length"]
    if values.get("max_new_tokens", length) != length:
        raise ValueError(
            f"max_completion_length={length} is TRL's name of max_new_tokens, got "
            f"max_new_tokens={values['max_new_tokens']} too; leave one out"
        )
    others = {name: value for name, value in values.items() if name != "max_completion_length"}
    return {**others, "max_new_tokens": length}


def require_lora_rank(config: Any) -> None:
    """Refuse options of an adapter without its rank, which would have no effect.

    Args:
        config: a :class:`rlox_llm.configs.LanguageConfig`.

    Raises:
        ValueError: there are some.
    """
    for name in ("lora_alpha", "lora_dropout"):
        if config.lora_rank is None and getattr(config, name):
            raise ValueError(
                f"{name}={getattr(config, name)} is of an adapter, and there is none; set "
                f"lora_rank, or leave {name} out"
            )


def require_logged_completions(config: Any) -> None:
    """Refuse a number of completions in a table that nobody gets.

    Args:
        config: a :class:`rlox_llm.configs.SamplingConfig`.

    Raises:
        ValueError: there is one.
    """
    if config.num_completions_to_print is not None and not config.log_completions:
        raise ValueError(
            f"num_completions_to_print={config.num_completions_to_print} is of a table that only "
            "log_completions=True makes; set it, or leave num_completions_to_print out"
        )
