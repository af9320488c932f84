"""``Corridor-v0``: walk right along eight cells; the smallest env with a contract worth testing.

An episode starts in one of the cells 0 to 3, drawn uniformly. Action 1 moves one cell to the right,
action 0 one to the left (cell 0 has a wall). Each step pays -1. Cell 7 terminates the episode, the
32nd step truncates it. From cell c the optimal return is c - 7, so -5.5 on average; a policy that
never arrives gets -32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.errors import EnvError
from rlox.protocols import VecEnvStep

N_CELLS = 8
N_STARTS = 4
TIME_LIMIT = 32
STATE = ("seeds", "episodes", "cells", "ages")
"""The arrays that say how the envs go on, one number per env each."""


class Corridor:
    """N corridors stepped together; fits :class:`rlox.protocols.VecEnv` and ``StatefulVecEnv``.

    Observations are one-hot cells (N, 8) float32. Start cells come from a counter-based generator:
    that of episode k in an env with seed s depends on (s, k) alone, so the four arrays of
    :meth:`state` are all there is to save.

    Args:
        n_envs: number of corridors N.
    """

    observation_space = spaces.Box(0.0, 1.0, (N_CELLS,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, n_envs: int = 1) -> None:
        if n_envs < 1:
            raise EnvError(f"n_envs must be at least 1, got {n_envs}")
        self.n_envs = n_envs
        self._seeds = np.random.SeedSequence().generate_state(n_envs, np.uint64)
        self._episodes, self._cells, self._ages = np.zeros((3, n_envs), np.int64)

    def reset_all(self, seed: int | Sequence[int] | None = None) -> npt.NDArray[np.float32]:
        """Start a new episode in every corridor and return the observations (N, 8).

        Args:
            seed: s gives corridor i the seed s + i; a sequence gives each its own; ``None``
                goes on to every corridor's next episode.
        """
        if seed is not None:
            seeds = [seed + i for i in range(self.n_envs)] if isinstance(seed, int) else list(seed)
            if len(seeds) != self.n_envs:
                raise EnvError(f"seed must have {self.n_envs} items, got {len(seeds)}")
            self._seeds = np.array(seeds, np.uint64)
            self._episodes[:] = 0
        self._start(np.arange(self.n_envs))
        return self._observe()

    def step_all(self, actions: Any) -> VecEnvStep:
        """Move in every corridor; actions (N,) of 0 and 1."""
        actions = np.asarray(actions)
        if actions.shape != (self.n_envs,):
            raise EnvError(f"actions must have shape ({self.n_envs},), got {actions.shape}")
        self._cells = np.clip(self._cells + np.where(actions == 1, 1, -1), 0, N_CELLS - 1)
        self._ages += 1
        terminated = self._cells == N_CELLS - 1
        truncated = ~terminated & (self._ages >= TIME_LIMIT)
        final_obs = self._observe()
        self._start(np.flatnonzero(terminated | truncated))
        return {
            "obs": self._observe(),
            "rewards": np.full(self.n_envs, -1.0),
            "terminated": terminated,
            "truncated": truncated,
            "final_obs": final_obs,
        }

    def close(self) -> None:
        """Free nothing: there is nothing."""

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return the complete state of all corridors."""
        return {name: getattr(self, f"_{name}").copy() for name in STATE}

    def set_state(self, state: dict[str, npt.NDArray[Any]]) -> None:
        """Restore what :meth:`state` returned."""
        for name in STATE:
            setattr(self, f"_{name}", state[name].copy())

    def _start(self, indices: npt.NDArray[np.int64]) -> None:
        for i in indices:
            stream = np.random.Philox(key=int(self._seeds[i]), counter=int(self._episodes[i]))
            self._cells[i] = np.random.Generator(stream).integers(N_STARTS)
        self._episodes[indices] += 1
        self._ages[indices] = 0

    def _observe(self) -> npt.NDArray[np.float32]:
        return np.eye(N_CELLS, dtype=np.float32)[self._cells]


def make_corridor(
    env_id: str, *, n_envs: int, env_kwargs: Mapping[str, Any] | None = None
) -> Corridor:
    """Build ``env_id``, which has no arguments; called by rlox."""
    if env_kwargs:
        raise EnvError(f"{env_id} takes no arguments, got {', '.join(env_kwargs)}")
    return Corridor(n_envs)
