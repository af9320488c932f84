"""Seeds of N envs for engines that take 32-bit integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from rlox.seeding import env_seeds

MAX_SEED = 2**31 - 1


def seeds_of_32_bits(seed: int | Sequence[int], n_envs: int) -> npt.NDArray[np.int64]:
    """Return a seed (N,) per env, each below 2³¹ - 1.

    Args:
        seed: an integer s gives env i the seed s + i; a sequence has one seed per env.
        n_envs: number of envs N.
    """
    return np.array([each % MAX_SEED for each in env_seeds(seed, n_envs)], np.int64)
