"""Vector steps with random actions, for timing envs alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rlox.protocols import VecEnv

__all__ = ["random_steps"]

DRAWN = 256
"""Actions per env that are drawn once and taken in turn."""


def random_steps(envs: VecEnv, seed: int) -> Callable[[int], None]:
    """Reset envs, and return what makes a number of vector steps with actions drawn before."""
    envs.reset_all(seed % 2**31)
    envs.action_space.seed(seed % 2**31)
    actions = [
        np.stack([np.asarray(envs.action_space.sample()) for _ in range(envs.n_envs)])
        for _ in range(DRAWN)
    ]

    def step(n_steps: int) -> None:
        for index in range(n_steps):
            envs.step_all(actions[index % DRAWN])

    return step
