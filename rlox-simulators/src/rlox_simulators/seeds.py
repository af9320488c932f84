"""Seeds of N envs for engines that take 32-bit integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MAX_SEED = 2**31 - 1


def seeds_of_32_bits(seed: int | Sequence[int], n_envs: int) -> npt.NDArray[np.int64]:
    """Return a seed (N,) per env, each below 2³¹ - 1.

    Args:
        seed: an integer s gives env i the seed s + i; a sequence has one seed per env.
        n_envs: number of envs N.
    """
    each = [seed + i for i in range(n_envs)] if isinstance(seed, (int, np.integer)) else seed
    return np.array([int(s) % MAX_SEED for s in each], np.int64)
