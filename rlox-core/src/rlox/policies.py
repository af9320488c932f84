"""``rlox.policies``: the documented path of :mod:`rlox.networks.actor_critics`."""

from rlox.networks.actor_critics import (
    ActorCriticPolicy,
    ContinuousPolicy,
    DiscretePolicy,
    Policy,
    make_policy,
)

__all__ = ["ActorCriticPolicy", "ContinuousPolicy", "DiscretePolicy", "Policy", "make_policy"]
