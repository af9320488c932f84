"""Statistics of collected rewards, with one transfer from the device."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlox_rl8.data import AlgorithmHparams, CollectStats

__all__ = ["collected", "deviation"]

SUMMARY = ("min", "max", "mean", "std")


def deviation(x: Tensor) -> Tensor:
    """Return the unbiased deviation; 0 of a lone number."""
    return x.std() if x.numel() > 1 else torch.zeros((), device=x.device)


def _summary(x: Tensor) -> list[Tensor]:
    return [x.min(), x.max(), x.mean(), deviation(x)]


def collected(
    storage: TensorDict, hparams: AlgorithmHparams, resets: bool, env_name: str
) -> tuple[CollectStats, float]:
    """Return a horizon's statistics and its reward scale.

    Args:
        storage: (T + 1, B).
        hparams: of the algorithm.
        resets: whether the horizon began with a reset.
        env_name: for the error.

    Raises:
        ValueError: observations or rewards are not finite.
    """
    rewards, obs = storage["rewards"][:-1], storage["obs"]
    found = [*_summary(rewards.sum(0)), *_summary(rewards)]
    found.append(obs.sum() if isinstance(obs, Tensor) else found[0])
    if hparams.normalize_rewards:
        found.append(deviation(storage["reversed_discounted_returns"][1:]))
    numbers = torch.stack([x.float() for x in found]).tolist()
    if any(x - x != 0 for x in numbers[:9]):
        raise ValueError(
            f"{env_name}.step must return finite observations and rewards, got NaN or infinity; "
            "correct the env"
        )
    stats: Any = {
        "env/resets": hparams.num_envs if resets else 0,
        "env/steps": hparams.num_envs * hparams.horizon,
    }
    for i, key in enumerate(f"{a}/{b}" for a in ("returns", "rewards") for b in SUMMARY):
        stats[key] = numbers[i]
    return stats, numbers[9] if hparams.normalize_rewards else 1.0
