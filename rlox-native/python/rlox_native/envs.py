"""Factories of native vector envs for rlox, of one agent or several."""

from collections.abc import Mapping
from typing import Any

from rlox_native._native import MultiAgentVecEnv, VecEnv


def make_vec_env(
    env_id: str, *, n_envs: int, env_kwargs: Mapping[str, Any] | None = None
) -> VecEnv:
    """Build a vector env of ``n_envs`` native envs.

    Args:
        env_id: one of :func:`rlox_native.native_env_ids`.
        n_envs: number of envs, at least 1.
        env_kwargs: must be empty; the native envs have no options.

    Raises:
        ValueError: ``env_id`` is unknown, ``n_envs`` is not positive, or there are ``env_kwargs``.
    """
    if env_kwargs:
        keys = ", ".join(sorted(map(repr, env_kwargs)))
        raise ValueError(
            f"native envs take no env_kwargs, got {keys}; use the gymnasium backend for them"
        )
    return VecEnv(n_envs, env_id=env_id)


def make_team_env(
    env_id: str, *, n_envs: int, env_kwargs: Mapping[str, Any] | None = None
) -> MultiAgentVecEnv:
    """Build a vector env of ``n_envs`` native multi-agent envs.

    Args:
        env_id: one of :func:`rlox_native.native_team_env_ids`.
        n_envs: number of envs, at least 1.
        env_kwargs: options of the env; see :class:`rlox_native.MultiAgentVecEnv`.

    Raises:
        ValueError: ``env_id`` or an option is unknown, or a number is out of range.
        TypeError: an option is neither a number nor a bool.
    """
    return MultiAgentVecEnv(n_envs, env_id=env_id, env_kwargs=env_kwargs)
