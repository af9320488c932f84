"""Vector envs from ids, factories or existing envs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import gymnasium
from gymnasium.vector import VectorEnv

from rlox import registry
from rlox.envs.gymnasium import GymVecEnv, Vectorization
from rlox.envs.teams import team_backend
from rlox.errors import ConfigError, EnvError, suggest
from rlox.protocols import MultiAgentVecEnv, VecEnv
from rlox.registry.entry import Registration

__all__ = ["env_id_of", "fixed_env_count", "make_vec_env"]

MAX_ENVS = 1 << 16
"""Copies of an env beyond which a number is a slip, or an attempt to exhaust the memory."""

WATCHERS = {
    "gymnasium.wrappers.common:RecordEpisodeStatistics",
    "gymnasium.wrappers.rendering:RecordVideo",
}
"""Wrappers that leave an env what it is for whoever acts in it."""


def env_id_of(env: Any) -> str | None:
    """Return the id that makes ``env`` again just as it is, or ``None``.

    An env with arguments or wrappers of its own has none, for its id makes another env; only those
    that record episodes do not count.
    """
    if isinstance(env, str):
        return env
    spec = env.spec if isinstance(env, gymnasium.Env) else None
    registered = None if spec is None else gymnasium.registry.get(spec.id)
    if spec is None or registered is None:
        return None
    unchanging = {k: v for k, v in spec.kwargs.items() if k == "render_mode"}
    expected = dataclasses.replace(
        registered,
        kwargs=registered.kwargs | unchanging,
        disable_env_checker=spec.disable_env_checker,
        additional_wrappers=registered.additional_wrappers
        + tuple(w for w in spec.additional_wrappers if w.entry_point in WATCHERS),
    )
    try:
        return spec.id if spec == expected else None
    except ValueError:  # arrays among the arguments, which do not compare to a truth value
        return None


def fixed_env_count(env: Any) -> int | None:
    """Return how many envs ``env`` is, or ``None`` if any number of copies can be made of it."""
    if isinstance(env, gymnasium.Env):
        return 1
    if isinstance(env, VectorEnv):
        return int(env.num_envs)
    if isinstance(env, (VecEnv, MultiAgentVecEnv)):
        return env.n_envs
    if hasattr(env, "possible_agents") and not isinstance(env, type):
        return 1
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
        n_envs: number of copies N; ``None`` uses 1, or as many as a vector env has.
        backend: env backend for ids; ``"auto"`` takes the fastest that has the id.
        vectorization: for gymnasium envs, ``"sync"`` or ``"async"`` (one process each).
        env_kwargs: arguments of ``gymnasium.make``; envs with arguments are gymnasium's.

    Raises:
        ConfigError: ``vectorization`` is given for a backend that is not gymnasium's.
        EnvError: the env cannot be built.
        UnknownNameError: the backend is not registered.
        PluginError: the backend is broken.
    """
    if isinstance(env, MultiAgentVecEnv):
        raise EnvError(
            f"{type(env).__name__} has several agents, which is no env of one agent; train it with "
            "'mappo' or 'ippo'"
        )
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
    chosen = _choose_backend(env, backend, bool(env_kwargs) or vectorization == "async")
    if chosen.spec.name == "gymnasium":
        return GymVecEnv(env, n_envs, vectorization=vectorization, env_kwargs=env_kwargs)
    if vectorization != "sync":
        raise ConfigError(
            f"vectorization='{vectorization}' is of gymnasium envs, got "
            f"env_backend='{chosen.spec.name}', which steps its envs as it does; leave one of them "
            "out"
        )
    return cast("VecEnv", chosen.build(env, n_envs=n_envs or 1, env_kwargs=env_kwargs))


def _choose_backend(env_id: str, backend: str, gymnasium_only: bool) -> Registration:
    found = registry.get_registry()
    if team_backend(env_id, backend) is not None:
        raise EnvError(
            f"'{env_id}' is an env of several agents, which is no env of one agent; train it with "
            "'mappo' or 'ippo'"
        )
    if backend != "auto":
        named = found.get("rlox_env_backends", backend)
        env_ids = named.spec.env_ids
        if env_ids and env_id not in env_ids:
            raise EnvError(
                f"the env backend '{backend}' has no '{env_id}'{suggest(env_id, env_ids)}; "
                f"it has {', '.join(env_ids)}; backend='auto' takes gymnasium's"
            )
        return named
    backends = found.by_priority("rlox_env_backends")
    has_it = [b for b in backends if env_id in b.spec.env_ids and not gymnasium_only]
    return has_it[0] if has_it else next(b for b in backends if b.spec.name == "gymnasium")
