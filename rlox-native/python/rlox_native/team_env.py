"""The function through which rlox builds native envs of several agents."""

from collections.abc import Mapping
from typing import Any

from rlox_native._native import MultiAgentVecEnv

__all__ = ["make_team_env"]


def make_team_env(
    env_id: str, *, n_envs: int, env_kwargs: Mapping[str, Any] | None = None
) -> MultiAgentVecEnv:
    """Build a vector env of ``n_envs`` native envs of several agents.

    Args:
        env_id: one of :func:`rlox_native.native_team_env_ids`.
        n_envs: how many envs, at least 1.
        env_kwargs: options of the env; see :class:`rlox_native.MultiAgentVecEnv`.

    Raises:
        ValueError: ``env_id`` or an option is unknown, or a number is out of range.
        TypeError: an option is neither a number nor a bool.
    """
    return MultiAgentVecEnv(n_envs, env_id=env_id, env_kwargs=env_kwargs)
