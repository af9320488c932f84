"""Trainers: an algorithm built from an env, under the introduction's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlox.algorithm import Algorithm
from rlox.api import make

__all__ = [
    "A2CTrainer",
    "DDPGTrainer",
    "DQNTrainer",
    "DiscreteSACTrainer",
    "HybridPPOTrainer",
    "PPOTrainer",
    "SACTrainer",
    "TD3Trainer",
]


def _trainer(name: str) -> Callable[..., Algorithm]:
    """Return what makes the algorithm registered as ``name``; a class in the documents."""

    def trainer(env: Any, **arguments: Any) -> Algorithm:
        return make(name, env=env, **arguments)

    trainer.__doc__ = f'Return ``rlox.make("{name}", env=env, ...)``.'
    return trainer


A2CTrainer = _trainer("a2c")
DDPGTrainer = _trainer("ddpg")
DQNTrainer = _trainer("dqn")
DiscreteSACTrainer = _trainer("discrete_sac")
HybridPPOTrainer = _trainer("hybrid_ppo")
PPOTrainer = _trainer("ppo")
SACTrainer = _trainer("sac")
TD3Trainer = _trainer("td3")
