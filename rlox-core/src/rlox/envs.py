"""From whatever a user passes as ``env`` to a vector env."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import gymnasium
from gymnasium.vector import VectorEnv

from rlox import registry
from rlox.errors import EnvError, suggest
from rlox.gym_vec_env import GymVecEnv, Vectorization
from rlox.protocols import VecEnv
from rlox.specs import EnvBackendSpec, resolve

__all__ = ["env_id_of", "fixed_env_count", "make_vec_env"]

MAX_ENVS = 1 << 16
"""Copies of an env beyond which a number is a slip, or an attempt to exhaust the memory."""


def env_id_of(env: Any) -> str | None:
    """Return the id under which ``env`` can be made again, or none."""
    if isinstance(env, str):
        return env
    spec = getattr(env, "spec", None)
    return spec.id if isinstance(env, gymnasium.Env) and spec is not None else None


def fixed_env_count(env: Any) -> int | None:
    """Return how many envs ``env`` is, or none when any number of copies can be made of it."""
    if isinstance(env, gymnasium.Env):
        return 1
    if isinstance(env, VectorEnv):
        return int(env.num_envs)
    if isinstance(env, VecEnv):
        return env.n_envs
    return None


def make_vec_env(
    env: Any,
    *,
    n_envs: int | None = None,
    backend: str = "auto",
    vectorization: Vectorization = "sync",
    env_kwargs: Mapping[str, Any] | None = None,
) -> VecEnv:
    """Build N copies of ``env``, stepped together.

    Args:
        env: a gymnasium id, a callable that makes a gymnasium env, a gymnasium env, a gymnasium
            vector env, or a :class:`~rlox.protocols.VecEnv` (returned as it is).
        n_envs: number of copies N; none: 1, or as many as a vector env has.
        backend: env backend for ids; ``"auto"`` takes the fastest that has the id.
        vectorization: for gymnasium envs, ``"sync"`` or ``"async"`` (one process each).
        env_kwargs: arguments of ``gymnasium.make``; envs with arguments are gymnasium's.

    Raises:
        EnvError: the env cannot be built.
        UnknownNameError: the backend is not registered.
    """
    if isinstance(env, VecEnv):
        if n_envs not in (None, env.n_envs):
            raise EnvError(f"n_envs is {n_envs}, but the vector env has {env.n_envs} envs")
        return env
    if n_envs is not None and n_envs > MAX_ENVS:
        raise EnvError(
            f"n_envs must be at most {MAX_ENVS}, got {n_envs}; for more, pass a vector env of your "
            "own"
        )
    if not isinstance(env, str):
        if backend not in ("auto", "gymnasium"):
            raise EnvError(
                f"the env backend '{backend}' takes ids, got {type(env).__name__}; "
                "leave the backend at 'auto'"
            )
        return GymVecEnv(env, n_envs, vectorization=vectorization, env_kwargs=env_kwargs)
    spec = _choose_backend(env, backend, bool(env_kwargs) or vectorization == "async")
    if spec.name == "gymnasium":
        return GymVecEnv(env, n_envs, vectorization=vectorization, env_kwargs=env_kwargs)
    factory = resolve(spec.factory)
    return cast("VecEnv", factory(env, n_envs=n_envs or 1, env_kwargs=env_kwargs))


def _choose_backend(env_id: str, backend: str, gymnasium_only: bool) -> EnvBackendSpec:
    found = registry.get_registry()
    if backend != "auto":
        spec = cast("EnvBackendSpec", found.get("rlox_env_backends", backend).spec)
        if spec.env_ids and env_id not in spec.env_ids:
            raise EnvError(
                f"the env backend '{backend}' has no '{env_id}'{suggest(env_id, spec.env_ids)}; "
                f"it has {', '.join(spec.env_ids)}; backend='auto' takes gymnasium's"
            )
        return spec
    specs: list[EnvBackendSpec] = found.by_priority("rlox_env_backends")
    has_it = [s for s in specs if env_id in s.env_ids and not gymnasium_only]
    return has_it[0] if has_it else next(s for s in specs if s.name == "gymnasium")
