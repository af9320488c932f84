"""Building PettingZoo envs from ids, callables and envs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from rlox.errors import EnvError, import_extra, suggest

from rlox_marl.envs.checks import Where
from rlox_marl.envs.one_env import OneEnv, read_spaces
from rlox_marl.envs.parallel import ParallelOne
from rlox_marl.envs.turns import TurnsOne

__all__ = ["EnvLike", "build_envs", "make_env"]

EnvLike = str | Callable[..., Any] | Any

EXTRA = "marl"

MPE2 = tuple(
    f"mpe2/{name}"
    for name in (
        "collect_treasure_v1", "simple_adversary_v3", "simple_crypto_v3", "simple_formation_v1",
        "simple_line_v1", "simple_push_v3", "simple_reference_v3", "simple_speaker_listener_v4",
        "simple_spread_v3", "simple_tag_v3", "simple_v3", "simple_world_comm_v3",
    )
)  # fmt: skip
"""Ids of mpe2's envs; mpe2 registers none with PettingZoo."""


def make_env(env_id: str, env_kwargs: Mapping[str, Any]) -> Any:
    """Make the env of an id: a parallel env where there is one, else an AEC env.

    Args:
        env_id: an id of ``pettingzoo.make`` (``sisl/multiwalker-v9``, or ``_v9``), or of
            :data:`MPE2`; ``module:id`` imports the module, which registers the id, first.
        env_kwargs: arguments of the env.

    Raises:
        EnvError: there is no such env, or it takes other arguments.
        MissingDependencyError: PettingZoo, or what the env needs, is not installed.
    """
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # envs open no window without render_mode
    pettingzoo = import_extra("pettingzoo", f"env '{env_id}'", EXTRA)
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise EnvError(f"env '{env_id}' cannot be built: {error}") from None
    try:
        if name in MPE2:
            home = import_extra(f"mpe2.{name.partition('/')[2]}", f"env '{env_id}'", EXTRA)
            return home.parallel_env(**env_kwargs)
        wanted = re.sub(r"_v(\d+)$", r"-v\1", name)
        registries = {"parallel": pettingzoo.parallel_registry, "aec": pettingzoo.aec_registry}
        for kind, registry in registries.items():
            if wanted in registry:
                return pettingzoo.make(kind, wanted, **env_kwargs)
    except TypeError as error:
        raise EnvError(f"env '{env_id}' cannot be built: {error}") from None
    except (ImportError, ValueError, AssertionError) as error:
        reason = str(error).removesuffix(".")
        raise EnvError(f"env '{env_id}' cannot be built: {reason}") from error
    known = sorted({*registries["parallel"], *registries["aec"], *MPE2})
    stem = name.rpartition("_v")[0] or wanted.rpartition("-v")[0]
    versions = [one for one in known if one.startswith((f"{stem}-v", f"{stem}_v"))] if stem else []
    hint = f"; there is {', '.join(versions)}" if versions else suggest(name, known)
    raise EnvError(
        f"no PettingZoo env is called '{env_id}'{hint}; ids look like 'sisl/multiwalker-v9', and "
        "'module:id' imports a module that registers one"
    )


def build_envs(
    env: EnvLike, n_envs: int, env_kwargs: Mapping[str, Any], first_number: int = 0
) -> list[OneEnv]:
    """Build N envs with checked steps.

    Args:
        env: an id, a callable that takes ``env_kwargs``, or one env.
        n_envs: number of envs N.
        env_kwargs: arguments of each env.
        first_number: what errors call the first env.

    Raises:
        EnvError: an env cannot be built, or is none of several agents.
    """
    if isinstance(n_envs, bool) or not isinstance(n_envs, int) or n_envs < 1:
        raise EnvError(f"n_envs must be an integer of at least 1, got {n_envs!r}")
    import_extra("pettingzoo", "an env of several agents", EXTRA)
    made: list[Any] = []
    try:
        if isinstance(env, str):
            made += (make_env(env, env_kwargs) for _ in range(n_envs))
        elif _is_env(env) or isinstance(env, gymnasium.Env):
            if n_envs != 1:
                raise EnvError(
                    f"one env cannot serve as n_envs = {n_envs} copies; pass its id or a callable "
                    "that makes it, or n_envs=1"
                )
            if env_kwargs:
                raise EnvError(
                    f"env_kwargs {sorted(env_kwargs)} cannot reach an env that is built already; "
                    "pass its id or a callable that makes it"
                )
            made.append(env)
        elif callable(env):
            for _ in range(n_envs):
                one = env(**env_kwargs)
                if any(one is other for other in made):
                    raise EnvError(
                        f"the env callable returned the same {type(one).__name__} more than once "
                        f"for n_envs = {n_envs}; let it make a new env at each call"
                    )
                made.append(one)
        else:
            raise EnvError(
                "env must be an id, a callable that makes a PettingZoo env, or one such env, got "
                f"{type(env).__name__}"
            )
        return [_checked(one, Where(first_number + i)) for i, one in enumerate(made)]
    except BaseException:
        for one in made:
            if one is not env and callable(getattr(one, "close", None)):
                one.close()
        raise


def _is_env(env: Any) -> bool:
    return not isinstance(env, type) and all(
        callable(getattr(env, name, None)) for name in ("reset", "step", "observation_space")
    )


def _checked(env: Any, where: Where) -> OneEnv:
    """Return an env of any kind with checked steps."""
    from pettingzoo import AECEnv
    from pettingzoo.utils.conversions import aec_to_parallel

    if isinstance(env, gymnasium.Env):
        raise EnvError(
            f"{type(env.unwrapped).__name__} is a gymnasium env of one agent; rlox.make takes it "
            "as env, and PettingZooVecEnv takes envs of several agents"
        )
    if not _is_env(env):
        raise EnvError(
            f"the env must be a PettingZoo parallel or AEC env, got {type(env).__name__}; it needs "
            "reset, step, observation_space(agent), action_space(agent) and possible_agents"
        )
    spaces = read_spaces(env)
    if isinstance(env, AECEnv):
        if not getattr(env, "metadata", {}).get("is_parallelizable", False):
            return TurnsOne(env, spaces, where)
        env = aec_to_parallel(env)
    elif hasattr(env, "agent_iter"):
        raise EnvError(
            f"{type(env).__name__} has agent_iter but is no pettingzoo.AECEnv; derive from it, so "
            "that it is stepped by turns"
        )
    return ParallelOne(env, spaces, where)
