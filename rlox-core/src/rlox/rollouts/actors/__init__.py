"""Actors: who collects unrolls while a learner learns."""

from rlox.rollouts.actors.pool import Actor, ActorPlan, ActorPool, Order, Taken, Weights
from rlox.rollouts.actors.process import (
    LocalActor,
    ProcessActor,
    make_process_actor,
    make_thread_actor,
)
from rlox.rollouts.actors.rollouts import ActorRollouts, Gathered

__all__ = [
    "Actor",
    "ActorPlan",
    "ActorPool",
    "ActorRollouts",
    "Gathered",
    "LocalActor",
    "Order",
    "ProcessActor",
    "Taken",
    "Weights",
    "make_process_actor",
    "make_thread_actor",
]
