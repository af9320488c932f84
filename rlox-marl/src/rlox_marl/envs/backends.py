"""Env backends of several agents: PettingZoo, and copies in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlox.envs import Vectorization
from rlox.errors import EnvError
from rlox.protocols import MultiAgentVecEnv

from rlox_marl.envs.pettingzoo import PettingZooVecEnv
from rlox_marl.envs.processes import PettingZooProcesses
from rlox_marl.envs.simple_spread import SimpleSpreadVecEnv

__all__ = ["VECTORIZED", "make_pettingzoo", "make_vectorized"]

VECTORIZED: dict[str, Callable[..., MultiAgentVecEnv]] = {
    "mpe2/simple_spread_v3": SimpleSpreadVecEnv
}
"""By id, envs whose copies are stepped all at once."""


def make_pettingzoo(
    env: Any,
    *,
    n_envs: int,
    env_kwargs: Mapping[str, Any] | None,
    vectorization: Vectorization = "sync",
) -> MultiAgentVecEnv:
    """Build N PettingZoo envs, in this process or (``"async"``) each in its own."""
    kind = PettingZooVecEnv if vectorization == "sync" else PettingZooProcesses
    return kind(env, n_envs, env_kwargs=env_kwargs)


def make_vectorized(
    env_id: str, *, n_envs: int, env_kwargs: Mapping[str, Any] | None
) -> MultiAgentVecEnv:
    """Build N envs that are stepped all at once.

    Raises:
        EnvError: the env takes other arguments.
    """
    try:
        return VECTORIZED[env_id](n_envs, **(env_kwargs or {}))
    except TypeError as error:
        raise EnvError(f"env '{env_id}' cannot be built: {error}") from None
