"""The networks of the off-policy and offline algorithms, for vector observations.

Continuous actions are in [-1, 1] in every dimension, for actors and critics alike;
:class:`rlox.replay.action_codec.BoxActions` converts them to an env's own bounds.
"""

from __future__ import annotations

from rlox.networks.policies import DeterministicPolicy, GaussianPolicy, SquashedGaussianPolicy
from rlox.networks.targets import polyak_update
from rlox.networks.values import (
    DiscreteQNetwork,
    DuelingQNetwork,
    QNetwork,
    TwinQNetwork,
    ValueNetwork,
)

__all__ = [
    "DeterministicPolicy",
    "DiscreteQNetwork",
    "DuelingQNetwork",
    "GaussianPolicy",
    "QNetwork",
    "SquashedGaussianPolicy",
    "TwinQNetwork",
    "ValueNetwork",
    "polyak_update",
]
