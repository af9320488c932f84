"""Vector envs of several agents from ids, factories or existing envs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import gymnasium
from gymnasium.vector import VectorEnv

from rlox import registry
from rlox.errors import (
    ConfigError,
    EnvError,
    MissingDependencyError,
    RloxError,
    missing_extra,
    requirement,
    suggest,
)
from rlox.protocols import MultiAgentVecEnv, VecEnv
from rlox.registry.table import Registration


def is_team(
    env: Any, *, backend: str = "auto", env_kwargs: Mapping[str, Any] | None = None
) -> bool:
    """Return whether ``env`` is, or makes, an env of several agents.

    Args:
        env: an id, a callable, an env or a vector env; a callable is called once, and its result
            is closed.
        backend: env backend for ids; ``"auto"`` asks all backends that have the id.
        env_kwargs: arguments of a callable.
    """
    if isinstance(env, str):
        return team_backend(env, backend) is not None
    if isinstance(env, MultiAgentVecEnv) or hasattr(env, "possible_agents"):
        return True
    if isinstance(env, (gymnasium.Env, VectorEnv, VecEnv)) or not callable(env):
        # a PettingZoo env without a list of its agents is refused where it is built
        spaces_by_agent = callable(getattr(env, "observation_space", None))
        return hasattr(env, "reset") and (spaces_by_agent or hasattr(env, "agents"))
    one = env(**(env_kwargs or {}))
    try:
        return not isinstance(one, type) and is_team(one)
    finally:
        if hasattr(one, "close"):  # anything else than an env is refused where it is built
            one.close()


def several_agents(what: str) -> EnvError:
    """Return the error for an env of several agents where one of a single agent is needed.

    Args:
        what: the env, as the beginning of a sentence.
    """
    found = registry.get_registry().usable("rlox_algorithms")
    names = [f"'{one.spec.name}'" for one in found if one.spec.trains_teams]
    *others, last = names or [f"an algorithm of: pip install '{requirement('marl')}'"]
    remedy = f"train it with {', '.join(others) + ' or ' if others else ''}{last}"
    return EnvError(f"{what} several agents, so it is not an env of one agent; {remedy}")


def make_team_env(
    env: Any,
    *,
    n_envs: int | None = None,
    backend: str = "auto",
    env_kwargs: Mapping[str, Any] | None = None,
    vectorization: str = "sync",
) -> MultiAgentVecEnv:
    """Build N copies of an env of several agents, stepped together.

    Args:
        env: an id, a callable that makes an env, an env, or a
            :class:`~rlox.protocols.MultiAgentVecEnv` (returned as it is).
        n_envs: number of copies N; ``None`` uses 1, or the number in a vector env.
        backend: env backend for ids; ``"auto"`` takes the fastest that has the id and knows the
            ``env_kwargs``.
        env_kwargs: arguments of the env.
        vectorization: ``"sync"``, or ``"async"`` for one process per env, which PettingZoo's envs
            support.

    Raises:
        ConfigError: ``vectorization="async"`` is asked for envs that cannot run in processes.
        EnvError: the env cannot be built, or no backend of envs of several agents has the id.
        UnknownNameError: the backend is not registered.
        MissingDependencyError: no distribution with such a backend is installed.
    """
    if isinstance(env, MultiAgentVecEnv):
        if n_envs not in (None, env.n_envs):
            raise EnvError(f"n_envs is {n_envs}, but the vector env has {env.n_envs} envs")
        if env_kwargs:
            raise EnvError(
                f"env_kwargs {sorted(env_kwargs)} cannot reach an env that is built already; pass "
                "its id or a callable that makes it"
            )
        if vectorization != "sync":
            raise _no_processes(f"a {type(env).__name__}", vectorization)
        return env
    arguments = dict(env_kwargs or {})
    how = {} if vectorization == "sync" else {"vectorization": vectorization}
    if isinstance(env, str):
        chosen, _ = choose_team_backend(env, backend, arguments, vectorization)
        if chosen is None:
            raise EnvError(
                f"no env backend has an env of several agents called '{env}'; ids look like "
                "'mpe2/simple_spread_v3', and env_backend='pettingzoo' takes any of PettingZoo's"
            )
        if how and not chosen.spec.processes:
            raise _no_processes(f"env_backend='{chosen.spec.name}'", vectorization)
        return _build(chosen, env, n_envs or 1, arguments, how)
    chosen = next((b for b in _backends() if not b.spec.env_ids), None)
    if chosen is None:
        raise missing_extra("an env of several agents", "marl")
    return cast(
        "MultiAgentVecEnv", chosen.build(env, n_envs=n_envs or 1, env_kwargs=arguments, **how)
    )


def team_backend(env_id: str, backend: str = "auto") -> Registration | None:
    """Return the backend that makes the multi-agent env of an id, or ``None``.

    Args:
        env_id: the id.
        backend: registered name; ``"auto"`` takes the one of highest priority that has the id.

    Raises:
        EnvError: the named backend does not have the id.
        UnknownNameError: the backend is not registered.
    """
    return choose_team_backend(env_id, backend)[0]


def choose_team_backend(
    env_id: str,
    backend: str = "auto",
    env_kwargs: Mapping[str, Any] | None = None,
    vectorization: str = "sync",
) -> tuple[Registration | None, str]:
    """Return the backend that makes the multi-agent env of an id, and the reason for the choice.

    Args:
        env_id: the id.
        backend: registered name; ``"auto"`` takes the backend of highest priority among those
            that have the id and know the ``env_kwargs``. A backend that does not list ``env_ids``
            tries any id.
        env_kwargs: arguments of the envs.
        vectorization: ``"async"`` skips backends that cannot run in processes.

    Returns:
        The backend, and the reason in words; ``None`` if the id is not a multi-agent env.

    Raises:
        EnvError: the named backend does not have the id.
        UnknownNameError: the backend is not registered.
    """
    if backend != "auto":
        named = registry.get_registry().get("rlox_env_backends", backend)
        if not named.spec.teams:
            return None, "it is not a backend of envs of several agents"
        if named.spec.env_ids and not has_id(named, env_id):
            known = ", ".join(named.spec.env_ids)
            raise EnvError(
                f"the env backend '{backend}' has no '{env_id}'"
                f"{suggest(env_id, named.spec.env_ids)}; it has {known}"
            )
        return named, "it is named"
    passed_over = []
    for one in _backends():
        if not has_id(one, env_id):
            continue
        unknown = sorted(set(env_kwargs or {}) - set(one.spec.env_kwargs))
        if vectorization != "sync" and not one.spec.processes:
            passed_over.append(f"'{one.spec.name}' has no vectorization='{vectorization}'")
        elif unknown and one.spec.env_ids:
            passed_over.append(f"'{one.spec.name}' takes no env_kwargs {unknown}")
        else:
            return one, "; ".join(["it is the fastest that has the id", *passed_over])
    return None, "; ".join(passed_over) or "none has the id"


def _build(
    chosen: Registration,
    env_id: str,
    n_envs: int,
    env_kwargs: dict[str, Any],
    how: dict[str, Any],
) -> MultiAgentVecEnv:
    """Build the envs of an id; an error about an argument suggests a similar name, if any."""
    known = {name for b in _backends() if has_id(b, env_id) for name in b.spec.env_kwargs}
    hints = "".join(suggest(name, known) for name in sorted(set(env_kwargs) - known))
    try:
        made = chosen.build(env_id, n_envs=n_envs, env_kwargs=env_kwargs, **how)
        return cast("MultiAgentVecEnv", made)
    except (EnvError, MissingDependencyError) as error:
        if not hints:
            raise
        raise type(error)(f"{error}{hints}") from error
    except RloxError:
        raise
    except (TypeError, ValueError) as error:
        raise EnvError(f"env backend '{chosen.spec.name}': {error}") from error


def _no_processes(what: str, vectorization: str) -> ConfigError:
    return ConfigError(
        f"vectorization='{vectorization}' is of PettingZoo's envs by id or callable, got {what}, "
        "which steps its envs as it does; leave one of them out"
    )


def _backends() -> list[Registration]:
    found = registry.get_registry().by_priority("rlox_env_backends")
    return [one for one in found if one.spec.teams]


def has_id(backend: Registration, env_id: str) -> bool:
    """Return whether a backend can build an id."""
    return env_id in backend.spec.env_ids or env_id.startswith(backend.spec.env_prefixes)
