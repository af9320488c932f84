"""Gymnasium envs made with arguments, and errors that name those."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from rlox.errors import EnvError, suggest

__all__ = ["make_env"]


def make_env(
    env: str | Callable[..., gymnasium.Env[Any, Any]], env_kwargs: Mapping[str, Any]
) -> gymnasium.Env[Any, Any]:
    """Return one env.

    Args:
        env: a gymnasium id, or a callable that makes an env.
        env_kwargs: its arguments.

    Raises:
        EnvError: it cannot be made with them; the text has their names and those that it takes.
    """
    make = partial(gymnasium.make, env) if isinstance(env, str) else env
    if not env_kwargs:
        return make()
    try:
        return make(**env_kwargs)
    except (AssertionError, TypeError, ValueError) as error:
        raise EnvError(
            f"env '{env}' cannot be built with the env_kwargs {dict(env_kwargs)}: {error}"
            f"{_known_arguments(env, env_kwargs)}"
        ) from error


def _known_arguments(env: Any, env_kwargs: Mapping[str, Any]) -> str:
    """Return what the env's constructor takes if an argument is not among it, else nothing."""
    try:
        entry_point = gymnasium.spec(env).entry_point if isinstance(env, str) else env
        creator = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
        parameters = inspect.signature(creator).parameters.values()  # type: ignore[arg-type]
    except (gymnasium.error.Error, ImportError, TypeError, ValueError):
        return ""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [parameter.name for parameter in parameters if parameter.kind in kinds]
    unknown = [name for name in env_kwargs if name not in known]
    if not unknown or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return ""
    return f"{suggest(unknown[0], known)} (it takes {', '.join(known) or 'nothing'})"
