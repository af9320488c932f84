"""Statistics of collected rewards, and parameters for loggers."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlox_rl8.data import AlgorithmHparams, CollectStats

__all__ = ["collected", "deviation", "params_of"]

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


def params_of(algorithm: Any) -> dict[str, Any]:
    """Return the names of an algorithm's classes and its hyperparameters, for loggers."""
    policy = algorithm.policy
    return {
        "env_cls": type(algorithm.env).__name__,
        "model_cls": type(policy.model).__name__,
        "distribution_cls": policy.distribution_cls.__name__,
        "optimizer_cls": type(algorithm.optimizer).__name__,
        "entropy_coeff": algorithm.entropy_scheduler.coeff,
        **algorithm.hparams.as_params(),
    }
