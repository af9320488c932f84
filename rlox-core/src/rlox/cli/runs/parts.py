"""Parts of an algorithm given on the command line: datasets, models, functions.

What a spec needs besides an env becomes flags: ``dataset`` is ``--dataset``, ``reward_fn`` is
``--reward``. A name that ends in ``_fn`` is code, ``module:function``; no file of a run names code,
so a resumed run is given it again.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from rlox.errors import ConfigError

HELP = {
    "dataset": "dataset to learn from, for algorithms that need one: a file or minari:<id>; "
    "stream: before it keeps it out of memory",
    "policy": "policy to evaluate: a file that `rlox export` wrote",
    "model": "language model to train: a folder that transformers saved",
    "ref_model": "reference that the model is held to: a folder; left out: the model as it is now",
    "reward_fn": "function that rewards completions",
    "preference_fn": "function that picks the better of two completions",
}
"""Meanings of the parts that rlox's own families name."""


def is_code(name: str) -> bool:
    """Return whether a part is a function, which a file must not name."""
    return name.endswith("_fn")


def flag_of(name: str) -> str:
    """Return the flag of a part, ``--reward`` of ``reward_fn``."""
    return f"--{name.removesuffix('_fn').replace('_', '-')}"


def part_parameters(needs: Iterable[str], takes: Iterable[str]) -> list[inspect.Parameter]:
    """Return keyword parameters that typer makes flags of.

    Args:
        needs: names of the parts that must be given.
        takes: names of those that may be.
    """
    required = set(needs)
    parameters = []
    for name in dict.fromkeys([*needs, *takes]):
        if name == "env":
            continue
        metavar = "MODULE:FUNCTION" if is_code(name) else "NAME"
        option = typer.Option(
            flag_of(name), help=HELP.get(name, name.replace("_", " ")), metavar=metavar
        )
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if name in required else None,
                annotation=Annotated[str if name in required else str | None, option],
            )
        )
    return parameters


def load_parts(parts: Mapping[str, str]) -> dict[str, Any]:
    """Return what the texts of parts stand for: functions imported, other texts as they are.

    The working directory is searched for modules, as ``python -m`` does.

    Raises:
        ConfigError: a text names no function that can be imported.
    """
    return {name: _function(name, text) if is_code(name) else text for name, text in parts.items()}


def _function(name: str, text: str) -> Any:
    module, _, attribute = text.partition(":")
    flag = flag_of(name)
    if not module or not attribute:
        raise ConfigError(f"{flag} must look like module:function, got '{text}'")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{flag} {text}: there is no module '{error.name}'") from None
    except AttributeError:
        raise ConfigError(f"{flag} {text}: '{module}' has no '{attribute}'") from None
    if not callable(found):
        raise ConfigError(f"{flag} {text}: it cannot be called, it is {type(found).__name__}")
    return found


def code_parts(parts: Mapping[str, str]) -> list[str]:
    """Return the flags that give the functions again, for the command that resumes a run."""
    return [word for name, text in parts.items() if is_code(name) for word in (flag_of(name), text)]
