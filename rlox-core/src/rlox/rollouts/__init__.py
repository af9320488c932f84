"""Rollouts: collecting them and estimating advantages."""

from rlox.rollouts.actor_critic import ActorCritic, Collector, PolicyMaker, fit_to_env
from rlox.rollouts.actors import EnvMemory, FeedForwardActor, MemoryActor, RolloutActor
from rlox.rollouts.collector import RolloutCollector
from rlox.rollouts.rollout import Rollout

__all__ = [
    "ActorCritic",
    "Collector",
    "EnvMemory",
    "FeedForwardActor",
    "MemoryActor",
    "PolicyMaker",
    "Rollout",
    "RolloutActor",
    "RolloutCollector",
    "fit_to_env",
]
