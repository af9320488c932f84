"""Rollouts: collecting them with a policy, and the base class of on-policy algorithms."""

from rlox.rollouts.actors.pool import Actor, ActorPlan, ActorPool, Taken, Weights
from rlox.rollouts.actors.process import LocalActor, ProcessActor
from rlox.rollouts.actors.rollouts import ActorRollouts, Gathered
from rlox.rollouts.algorithm import (
    NETWORK_OPTIONS,
    RolloutAlgorithm,
    RolloutMetrics,
    fit_to_env,
    minimize_over_epochs,
    require_objective,
    resolve_for_env,
)
from rlox.rollouts.collector import (
    EnvMemory,
    MemoryActor,
    RolloutCollector,
    UnrollWriter,
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
    "resolve_for_env",
]
