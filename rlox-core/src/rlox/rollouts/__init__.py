"""Rollouts: collecting them with a policy, and the actor-critic that acts."""

from rlox.rollouts.actor_critic import ActorCritic, Collector, PolicyMaker, fit_to_env
from rlox.rollouts.collector import RolloutCollector
from rlox.rollouts.memory import EnvMemory, MemoryActor
from rlox.rollouts.writer import UnrollWriter

__all__ = [
    "ActorCritic",
    "Collector",
    "EnvMemory",
    "MemoryActor",
    "PolicyMaker",
    "RolloutCollector",
    "UnrollWriter",
    "fit_to_env",
]
