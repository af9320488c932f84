"""Vector envs of several agents: PettingZoo's, and simple_spread in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlox.envs import Vectorization
from rlox.errors import EnvError
from rlox.protocols import MultiAgentVecEnv

from rlox_marl.envs.groups import group_agents
from rlox_marl.envs.pettingzoo import PettingZooProcesses, PettingZooVecEnv
from rlox_marl.envs.simple_spread import SimpleSpreadVecEnv

__all__ = [
    "PettingZooProcesses",
    "PettingZooVecEnv",
    "SimpleSpreadVecEnv",
    "group_agents",
    "make_pettingzoo",
    "make_vectorized",
]


def make_pettingzoo(
    env: Any,
    *,
    n_envs: int,
    env_kwargs: Mapping[str, Any] | None,
    vectorization: Vectorization = "sync",
) -> MultiAgentVecEnv:
    """Build N PettingZoo envs, in this process or, with ``"async"``, each in its own."""
    kind = PettingZooVecEnv if vectorization == "sync" else PettingZooProcesses
    return kind(env, n_envs, env_kwargs=env_kwargs)


def make_vectorized(
    env_id: str, *, n_envs: int, env_kwargs: Mapping[str, Any] | None
) -> MultiAgentVecEnv:
    """Build N envs of ``mpe2/simple_spread_v3``, stepped all at once.

    Raises:
        EnvError: the env does not take these arguments.
    """
    try:
        return SimpleSpreadVecEnv(n_envs, **(env_kwargs or {}))
    except TypeError as error:
        raise EnvError(f"env '{env_id}' cannot be built: {error}") from None
