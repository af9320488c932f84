"""Rollouts: collecting them and estimating advantages."""

from rlox.rollouts.actor_critic import ActorCritic, Collector, PolicyMaker, fit_to_env
from rlox.rollouts.advantages import add_values, estimate_advantages
from rlox.rollouts.building import NETWORK_OPTIONS, make_agent, require_objective
from rlox.rollouts.collector import RolloutCollector
from rlox.rollouts.memory import EnvMemory, MemoryActor
from rlox.rollouts.writer import UnrollWriter

__all__ = [
    "NETWORK_OPTIONS",
    "ActorCritic",
    "Collector",
    "EnvMemory",
    "MemoryActor",
    "PolicyMaker",
    "RolloutCollector",
    "UnrollWriter",
    "add_values",
    "estimate_advantages",
    "fit_to_env",
    "make_agent",
    "require_objective",
]
