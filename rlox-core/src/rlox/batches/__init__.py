"""Batches: what learners learn from, and the advantages of a rollout."""

from rlox.batches.rollout import (
    RolloutBatch,
    RolloutMinibatch,
    Unroll,
    add_values,
    estimate_advantages,
)
from rlox.batches.transitions import TransitionBatch

__all__ = [
    "RolloutBatch",
    "RolloutMinibatch",
    "TransitionBatch",
    "Unroll",
    "add_values",
    "estimate_advantages",
]
