"""Checks of options of language models that go together."""

from __future__ import annotations

from typing import Any

__all__ = ["require_logged_completions", "require_lora_rank", "take_name_of_trl"]


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
