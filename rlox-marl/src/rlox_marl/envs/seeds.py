"""Seeds of N envs, as gymnasium counts them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rlox.errors import EnvError

__all__ = ["env_seeds"]


def env_seeds(seed: int | Sequence[int] | None, n_envs: int) -> list[int | None]:
    """Return one seed per env.

    Args:
        seed: an integer s gives env i the seed s + i; a sequence gives each its own; ``None`` gives
            none.
        n_envs: number of envs N.

    Raises:
        EnvError: the sequence has another length than N, or a seed is negative or no integer.
    """
    if seed is None:
        return [None] * n_envs
    seeds = [seed + i for i in range(n_envs)] if isinstance(seed, (int, np.integer)) else list(seed)
    if len(seeds) != n_envs:
        raise EnvError(f"seed has {len(seeds)} seeds for {n_envs} envs; give one per env")
    for one in seeds:
        if not isinstance(one, (int, np.integer)) or one < 0:
            raise EnvError(f"seed must be integers of at least 0, got {one!r}")
    return [int(one) for one in seeds]
