"""Seeds of workers' envs, also of those that begin again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["seeds_of_attempt", "seeds_of_envs"]


def seeds_of_envs(seed: int | Sequence[int] | None, n_envs: int) -> list[int] | None:
    """Return the seed of each env; see :meth:`rlox.protocols.VecEnv.reset_all`."""
    if seed is None:
        return None
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + i for i in range(n_envs)]
    return [int(each) for each in seed]


def seeds_of_attempt(seeds: Sequence[int], attempt: int) -> list[int]:
    """Return the seeds of envs that begin for the n-th time again; 0 is the first time."""
    if not attempt or not seeds:
        return list(seeds)
    drawn: list[int] = np.random.SeedSequence((*seeds, attempt)).generate_state(len(seeds)).tolist()
    return drawn
