"""Vector envs from ids, factories or existing envs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import gymnasium
from gymnasium.vector import VectorEnv

from rlox import registry
from rlox.config.composition import Selection
from rlox.config.model import Config
from rlox.envs.gymnasium import GymVecEnv, Vectorization
from rlox.envs.teams import has_id, several_agents, team_backend
from rlox.errors import ConfigError, EnvError, RloxError, missing_extra, suggest
from rlox.protocols import MultiAgentVecEnv, TensorEnv, VecEnv
from rlox.registry.table import Registration

ConfigT = TypeVar("ConfigT", bound=Config)

MAX_ENVS = 1 << 16
"""Copies of an env beyond which the number is a typo or an attempt to exhaust the memory."""

WATCHERS = {
    "gymnasium.wrappers.common:RecordEpisodeStatistics",
    "gymnasium.wrappers.rendering:RecordVideo",
}
"""Wrappers that change nothing for the policy that acts."""

NAMED = "it is named"
NO_OTHER = "no other has the id"


def env_id_of(env: Any) -> str | None:
    """Return the id that recreates ``env`` exactly, or ``None``.

    An env with its own arguments or wrappers has no such id, because the id alone makes another
    env; wrappers that only record episodes do not count.
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
    """Return the number of envs in ``env``, or ``None`` if it can be copied any number of times."""
    if isinstance(env, gymnasium.Env):
        return 1
    if isinstance(env, VectorEnv):
        return int(env.num_envs)
    if isinstance(env, (VecEnv, MultiAgentVecEnv, TensorEnv)):
        return env.n_envs
    if hasattr(env, "possible_agents") and not isinstance(env, type):
        return 1
    return None


def fit_env_count(config: ConfigT, env: Any) -> ConfigT:
    """Return a config with the number of envs in ``env``, if it is fixed and ``n_envs`` is unset.

    Args:
        config: has the field.
        env: the user's env.
    """
    count = fixed_env_count(env)
    if count is None or "n_envs" in config.model_fields_set:
        return config
    return config.replace(n_envs=count)


def make_vec_env(
    env: Any,
    *,
    n_envs: int | None = None,
    backend: str | Selection = "auto",
    vectorization: Vectorization = "sync",
    env_kwargs: Mapping[str, Any] | None = None,
    max_restarts: int = 0,
) -> VecEnv:
    """Build N copies of ``env``, stepped together.

    Args:
        env: a gymnasium id, a callable that makes a gymnasium env, a gymnasium env, a gymnasium
            vector env, a :class:`~rlox.protocols.VecEnv` (returned as it is), or a
            :class:`~rlox.protocols.TensorEnv`.
        n_envs: number of copies N; ``None`` uses 1, or the number in a vector env.
        backend: env backend for ids, optionally with its options; ``"auto"`` takes the fastest
            that has the id.
        vectorization: for gymnasium envs, ``"sync"`` or ``"async"`` (one process each).
        env_kwargs: arguments of ``gymnasium.make``, of the callable or of the backend; ``"auto"``
            takes a backend that knows them.
        max_restarts: number of restarts of each env that runs in its own process; for callers that
            handle ``lost`` of :class:`rlox.protocols.VecEnvStep`.

    Raises:
        ConfigError: ``vectorization`` is given for a backend other than gymnasium, or
            ``env_kwargs`` for an env that already exists.
        EnvError: the env cannot be built.
        MissingDependencyError: the distribution of the backend, or the game of ALE, is not
            installed.
        UnknownNameError: the backend is not registered.
        PluginError: the backend is broken.
    """
    if isinstance(env, MultiAgentVecEnv):
        raise several_agents(f"{type(env).__name__} has")
    if env_kwargs and fixed_env_count(env) is not None:
        raise ConfigError(
            f"env_kwargs {sorted(env_kwargs)} cannot reach a {type(env).__name__} that is built "
            "already; pass its id or a callable as env, or env_kwargs={}"
        )
    if isinstance(env, (VecEnv, TensorEnv)):
        if n_envs not in (None, env.n_envs):
            raise EnvError(f"n_envs is {n_envs}, but the vector env has {env.n_envs} envs")
        return env if isinstance(env, VecEnv) else _as_vec_env(env)
    if n_envs is not None and n_envs > MAX_ENVS:
        raise EnvError(
            f"n_envs must be at most {MAX_ENVS}, got {n_envs}; for more, pass a vector env of your "
            "own"
        )
    selected = backend if isinstance(backend, Selection) else Selection(backend)
    options: dict[str, Any] = {
        "vectorization": vectorization,
        "env_kwargs": env_kwargs,
        "max_restarts": max_restarts,
    }
    if not isinstance(env, str):
        if selected.name not in ("auto", "gymnasium"):
            raise EnvError(
                f"the env backend '{selected.name}' takes ids, got {type(env).__name__}; "
                "leave the backend at 'auto'"
            )
        return GymVecEnv(env, n_envs, **options)
    chosen, reason = choose_backend(env, selected.name, vectorization, env_kwargs)
    if chosen.spec.name == "gymnasium":
        return _take_gymnasium(env, n_envs, reason, options)
    if vectorization != "sync":
        raise ConfigError(
            f"vectorization='{vectorization}' is of gymnasium envs, got "
            f"env_backend='{chosen.spec.name}', which steps its envs as it does; leave one of them "
            "out"
        )
    asked = {"n_envs": n_envs or 1, "env_kwargs": env_kwargs, "options": selected.options}
    try:
        return cast("VecEnv", chosen.build(env, **asked))
    except (TypeError, ValueError) as error:
        if isinstance(error, RloxError) or not env_kwargs:
            raise
        raise EnvError(
            f"the env backend '{chosen.spec.name}' cannot build '{env}' with the env_kwargs "
            f"{dict(env_kwargs)}: {error}"
        ) from error


def _as_vec_env(env: TensorEnv) -> VecEnv:
    from rlox.envs.tensors import TensorVecEnv  # which needs torch

    return TensorVecEnv(env)


def _take_gymnasium(
    env_id: str, n_envs: int | None, reason: str, options: Mapping[str, Any]
) -> GymVecEnv:
    """Build gymnasium's env; an error lists the backends that were skipped."""
    try:
        return GymVecEnv(env_id, n_envs, **options)
    except EnvError as error:
        if reason in (NAMED, NO_OTHER):
            raise
        raise EnvError(f"{error}; another env backend has the id, but {reason}") from error


def choose_backend(
    env_id: str,
    backend: str = "auto",
    vectorization: Vectorization = "sync",
    env_kwargs: Mapping[str, Any] | None = None,
) -> tuple[Registration, str]:
    """Return the env backend that builds an id, and the reason for the choice.

    Args:
        env_id: a gymnasium id.
        backend: a registered name, or ``"auto"``.
        vectorization: ``"async"`` selects gymnasium.
        env_kwargs: arguments of the envs.

    Raises:
        EnvError: the named backend does not have the id.
        MissingDependencyError: the distribution of the backend, or the game of ALE, is not
            installed.
        UnknownNameError: the backend is not registered.
    """
    found = registry.get_registry()
    if team_backend(env_id, backend) is not None:
        raise several_agents(f"'{env_id}' is an env of")
    if backend != "auto":
        named = found.get("rlox_env_backends", backend)
        env_ids, prefixes = named.spec.env_ids, named.spec.env_prefixes
        if (env_ids or prefixes) and not has_id(named, env_id):
            known = [*env_ids, *(f"{prefix}…" for prefix in prefixes)]
            raise EnvError(
                f"the env backend '{backend}' has no '{env_id}'{suggest(env_id, env_ids)}; "
                f"it has {', '.join(known)}; without env_backend it is gymnasium's"
            )
        return named, NAMED
    backends = found.by_priority("rlox_env_backends")
    passed_over = []
    for each in backends:
        if each.spec.priority < 0 or not has_id(each, env_id):
            continue
        unknown = sorted(set(env_kwargs or {}) - set(each.spec.env_kwargs))
        if vectorization == "async":
            passed_over.append(f"'{each.spec.name}' has no vectorization='async'")
        elif unknown:
            hint = suggest(unknown[0], each.spec.env_kwargs)
            passed_over.append(f"'{each.spec.name}' takes no env_kwargs {unknown}{hint}")
        elif each.spec.unavailable is not None and (reason := each.load("unavailable")()):
            passed_over.append(f"'{each.spec.name}' cannot be used: {reason}")
        else:
            return each, "; ".join(["it is the fastest that has the id", *passed_over])
    if env_id.startswith("ALE/") and not passed_over:  # gymnasium's are not preprocessed
        raise missing_extra(f"'{env_id}'", "atari")
    takes_all = next(b for b in backends if b.spec.name == "gymnasium")
    return takes_all, "; ".join(passed_over) or NO_OTHER
