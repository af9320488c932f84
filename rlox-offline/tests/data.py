"""Small datasets for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from rlox_offline.datasets import Dataset

FORMATS = [".npz", ".h5", ".parquet", ".arrow"]
"""One suffix of each reader."""


def columns(n: int = 120, obs_dim: int = 3, act_dim: int = 2, seed: int = 0) -> dict[str, Any]:
    """Return episodes of 10 steps, every other one terminated, with actions in [-2, 2]."""
    rng = np.random.default_rng(seed)
    last = np.arange(n) % 10 == 9
    obs, final_obs = rng.normal(3.0, 2.0, (2, n, obs_dim)).astype(np.float32)
    return {
        "obs": obs,
        "next_obs": np.where(last[:, None], final_obs, np.roll(obs, -1, axis=0)),
        "actions": rng.uniform(-2, 2, (n, act_dim)).astype(np.float32),
        "rewards": rng.normal(size=n).astype(np.float32),
        "terminated": last & (np.arange(n) // 10 % 2 == 0),
        "truncated": last & (np.arange(n) // 10 % 2 == 1),
    }


def continuous(**options: Any) -> Dataset:
    """Return a dataset with actions in [-2, 2]."""
    return Dataset(columns(), **{"act_low": -2.0, "act_high": 2.0, **options})


def discrete(n_actions: int = 4, **options: Any) -> Dataset:
    """Return a dataset with actions 0 to n_actions - 2; the last one never occurs."""
    data = columns()
    data["actions"] = np.random.default_rng(1).integers(n_actions - 1, size=120)
    return Dataset(data, n_actions=n_actions, **options)
