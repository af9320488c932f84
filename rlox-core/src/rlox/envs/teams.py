"""Vector envs of several agents from ids, factories or existing envs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import gymnasium
from gymnasium.vector import VectorEnv

from rlox import registry
from rlox.errors import EnvError, missing_extra
from rlox.protocols import MultiAgentVecEnv, VecEnv
from rlox.registry.entry import Registration

__all__ = ["is_team", "make_team_env", "team_backend"]


def is_team(
    env: Any, *, backend: str = "auto", env_kwargs: Mapping[str, Any] | None = None
) -> bool:
    """Return whether ``env`` is, or makes, an env of several agents.

    Args:
        env: an id, a callable, an env or a vector env; a callable is called once, and what it made
            is closed.
        backend: env backend for ids; ``"auto"`` asks those that have the id.
        env_kwargs: arguments of a callable.
    """
    if isinstance(env, str):
        return team_backend(env, backend) is not None
    if isinstance(env, MultiAgentVecEnv) or hasattr(env, "possible_agents"):
        return True
    if isinstance(env, (gymnasium.Env, VectorEnv, VecEnv)) or not callable(env):
        # a PettingZoo env without a list of its agents is refused where it is built
        return hasattr(env, "reset") and hasattr(env, "agents")
    one = env(**(env_kwargs or {}))
    try:
        return not isinstance(one, type) and is_team(one)
    finally:
        one.close()


def make_team_env(
    env: Any,
    *,
    n_envs: int | None = None,
    backend: str = "auto",
    env_kwargs: Mapping[str, Any] | None = None,
) -> MultiAgentVecEnv:
    """Build N copies of an env of several agents, stepped together.

    Args:
        env: an id, a callable that makes an env, an env, or a
            :class:`~rlox.protocols.MultiAgentVecEnv` (returned as it is).
        n_envs: number of copies N; ``None`` uses 1, or as many as a vector env has.
        backend: env backend for ids; ``"auto"`` takes the fastest that has the id.
        env_kwargs: arguments of the env.

    Raises:
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
        return env
    if isinstance(env, str):
        chosen = team_backend(env, backend)
        if chosen is None:
            raise EnvError(
                f"no env backend has an env of several agents called '{env}'; ids look like "
                "'mpe2/simple_spread_v3', and env_backend='pettingzoo' takes any of PettingZoo's"
            )
    else:
        chosen = next((b for b in _backends() if not b.spec.env_ids), None)
        if chosen is None:
            raise missing_extra("an env of several agents", "marl")
    built = chosen.build(env, n_envs=n_envs or 1, env_kwargs=dict(env_kwargs or {}))
    return cast("MultiAgentVecEnv", built)


def team_backend(env_id: str, backend: str = "auto") -> Registration | None:
    """Return the backend that makes an env of several agents of an id, or ``None``.

    Args:
        env_id: the id.
        backend: registered name; ``"auto"`` takes the one of highest priority that has the id.
    """
    if backend != "auto":
        named = registry.get_registry().get("rlox_env_backends", backend)
        return named if named.spec.teams else None
    return next((b for b in _backends() if _has(b, env_id)), None)


def _backends() -> list[Registration]:
    found = registry.get_registry().by_priority("rlox_env_backends")
    return [one for one in found if one.spec.teams]


def _has(backend: Registration, env_id: str) -> bool:
    return env_id in backend.spec.env_ids or env_id.startswith(backend.spec.env_prefixes)
