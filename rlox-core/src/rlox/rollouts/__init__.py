"""Rollouts: collecting them with a policy, and the actor-critic that acts."""

from rlox.rollouts.actor_critic import (
    NETWORK_OPTIONS,
    ActorCritic,
    Collector,
    PolicyMaker,
    fit_to_env,
    make_agent,
    make_objective,
    require_objective,
)
from rlox.rollouts.actors import (
    Actor,
    ActorPlan,
    ActorPool,
    ActorRollouts,
    Gathered,
    LocalActor,
    Order,
    ProcessActor,
    Taken,
    Weights,
)
from rlox.rollouts.collector import RolloutCollector, require_same_option
from rlox.rollouts.writer import EnvMemory, MemoryActor, UnrollWriter

__all__ = [
    "NETWORK_OPTIONS",
    "Actor",
    "ActorCritic",
    "ActorPlan",
    "ActorPool",
    "ActorRollouts",
    "Collector",
    "EnvMemory",
    "Gathered",
    "LocalActor",
    "MemoryActor",
    "Order",
    "PolicyMaker",
    "ProcessActor",
    "RolloutCollector",
    "Taken",
    "UnrollWriter",
    "Weights",
    "fit_to_env",
    "make_agent",
    "make_objective",
    "require_objective",
    "require_same_option",
]
