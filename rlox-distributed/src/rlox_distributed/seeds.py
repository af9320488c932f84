"""Seeds of workers' envs, also of those that begin again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from rlox.errors import EnvError

__all__ = ["seeds_of_attempt", "seeds_of_envs"]


def seeds_of_envs(seed: int | Sequence[int] | None, n_envs: int) -> list[int] | None:
    """Return the seed of each env; see :meth:`rlox.protocols.VecEnv.reset_all`.

    Raises:
        EnvError: there are more or fewer seeds than envs, or one is no integer of 64 bits.
    """
    if seed is None:
        return None
    seeds: list[int]
    if isinstance(seed, (int, np.integer)):
        seeds = [int(seed) + i for i in range(n_envs)]
    else:
        seeds = list(seed) if isinstance(seed, Iterable) else [seed]
    for one in seeds:
        if not isinstance(one, (int, np.integer)) or not 0 <= one < 1 << 64:
            raise EnvError(f"seed must be integers from 0 to 2**64 - 1, got {one!r}")
    if len(seeds) != n_envs:
        raise EnvError(f"seed has {len(seeds)} seeds for {n_envs} envs; give one per env")
    return [int(one) for one in seeds]


def seeds_of_attempt(seeds: Sequence[int], attempt: int) -> list[int]:
    """Return the seeds of envs that begin for the n-th time again; 0 is the first time."""
    if not attempt or not seeds:
        return list(seeds)
    drawn: list[int] = np.random.SeedSequence((*seeds, attempt)).generate_state(len(seeds)).tolist()
    return drawn
