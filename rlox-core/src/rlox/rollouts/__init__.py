"""Rollouts: collecting them with a policy, and the frame of the algorithms that do."""

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
from rlox.rollouts.algorithm import (
    NETWORK_OPTIONS,
    PolicyMaker,
    RolloutAlgorithm,
    RolloutMetrics,
    fit_to_env,
    minimize_over_epochs,
    require_objective,
)
from rlox.rollouts.collector import (
    EnvMemory,
    MemoryActor,
    RolloutCollector,
    UnrollWriter,
    require_same_option,
)

__all__ = [
    "NETWORK_OPTIONS",
    "Actor",
    "ActorPlan",
    "ActorPool",
    "ActorRollouts",
    "EnvMemory",
    "Gathered",
    "LocalActor",
    "MemoryActor",
    "Order",
    "PolicyMaker",
    "ProcessActor",
    "RolloutAlgorithm",
    "RolloutCollector",
    "RolloutMetrics",
    "Taken",
    "UnrollWriter",
    "Weights",
    "fit_to_env",
    "minimize_over_epochs",
    "require_objective",
    "require_same_option",
]
