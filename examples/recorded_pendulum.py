"""Episodes of a hand-written controller, for the examples that learn from recorded data."""

from __future__ import annotations

from typing import Any

import numpy as np
from rlox_offline.datasets import Dataset, record


class Controller:
    """Swings a pendulum up by its energy, holds it at the top, and errs a little."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """Return torques (B, 1) for observations (B, 3)."""
        cos, sin, speed = np.moveaxis(np.asarray(obs), -1, 0)
        too_slow = 1 - cos > speed**2 / 30
        swing = 2 * np.where(too_slow, np.sign(speed), -np.sign(speed))
        torque = np.where(cos > 0.8, -10 * sin - 2 * speed, swing)
        noisy = torque + 0.3 * self._rng.normal(size=torque.shape)
        return np.clip(noisy, -2, 2).astype(np.float32)[..., None]


def recorded_episodes(n_steps: int = 4_000) -> Dataset:
    """Return steps of the controller on ``Pendulum-v1``."""
    return record(Controller(), "Pendulum-v1", n_steps, n_envs=5, seed=0)
