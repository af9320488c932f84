"""PPO on batched envs that live on the learner's device."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlox_rl8.algorithms import (
        Algorithm,
        AlgorithmConfig,
        RecurrentAlgorithm,
        RecurrentAlgorithmConfig,
    )
    from rlox_rl8.env import Env
    from rlox_rl8.trainers import RecurrentTrainer, TrainConfig, Trainer

__all__ = [
    "Algorithm",
    "AlgorithmConfig",
    "Env",
    "RecurrentAlgorithm",
    "RecurrentAlgorithmConfig",
    "RecurrentTrainer",
    "TrainConfig",
    "Trainer",
]

HOMES = {"Env": "env", **dict.fromkeys(("RecurrentTrainer", "TrainConfig", "Trainer"), "trainers")}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rlox_rl8' has no '{name}'")
    return getattr(importlib.import_module(f"rlox_rl8.{HOMES.get(name, 'algorithms')}"), name)
