"""Gymnasium envs made with arguments, and errors about both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from rlox.errors import EnvError, suggest

__all__ = ["Spaces", "make_env", "require_env"]

Spaces = dict[str, tuple[int, gymnasium.Space[Any]]]
"""By attribute of an env: the number of the first env, and its space."""


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


def require_env(made: Any, number: int, spaces: Spaces) -> gymnasium.Env[Any, Any]:
    """Return what was made if it can be one of several envs that are stepped together.

    Args:
        made: what an id or a callable has made.
        number: of the env, for errors.
        spaces: of the first env; filled by the first call.

    Raises:
        EnvError: it is no gymnasium env, lacks a space, or has another than the first env.
    """
    if not isinstance(made, gymnasium.Env):
        raise EnvError(f"the env callable must return a gymnasium.Env, got {type(made).__name__}")
    for name in ("observation_space", "action_space"):
        space = getattr(made, name, None)
        if not isinstance(space, gymnasium.Space):
            raise EnvError(
                f"{type(made).__name__}.{name} must be a gymnasium.Space, got {space!r}; set it in "
                "the env's constructor"
            )
        first, expected = spaces.setdefault(name, (number, space))
        if space != expected:
            raise EnvError(
                f"env {number} has the {name} {space}, and env {first} has {expected}; envs that "
                "are stepped together must have the same, so let the callable make equal ones"
            )
    return made


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
