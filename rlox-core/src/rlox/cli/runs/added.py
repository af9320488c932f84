"""Options that plugins add to ``rlox train`` and ``rlox resume``: the hook ``rlox_run_options``."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from rlox.errors import PluginWarning, RloxError
from rlox.registry.table import get_registry

Added = list[tuple[Callable[..., int | None], list[inspect.Parameter]]]
"""Functions, each with the parameters that are its options."""


def added_to(command: Literal["train", "resume"], taken: Iterable[str]) -> Added:
    """Return the functions and options that plugins add to a command.

    A function is left out with a warning if it cannot be imported, or if one of its options has the
    name of another.

    Args:
        command: its name.
        taken: names of its own options.
    """
    names, found = set(taken), []
    for registration in get_registry().usable("rlox_run_options"):
        try:
            function = registration.load(command)
            parameters = inspect.signature(function, eval_str=True).parameters.values()
            options = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
            if twice := sorted(names & {p.name for p in options}):
                raise registration.broken(f"'rlox {command}' has an option '{twice[0]}' already")
        except RloxError as error:
            warnings.warn(str(error), PluginWarning, stacklevel=2)
            continue
        names |= {p.name for p in options}
        found.append((function, options))
    return found


def exit_code_of(added: Added, values: Mapping[str, Any], *arguments: Any) -> int | None:
    """Return the exit code of the first function that takes the run over; ``None``: none does.

    Args:
        added: what plugins add.
        values: of all options, by name.
        arguments: of the functions.
    """
    for function, options in added:
        code = function(*arguments, **{p.name: values[p.name] for p in options})
        if code is not None:
            return code
    return None


def with_options(
    command: Callable[..., None], parameters: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    """Give a function the signature that typer reads, and return it."""
    found = list(parameters)
    command.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in found}
    return command
