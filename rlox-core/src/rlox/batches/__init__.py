"""Batches: what learners learn from."""

from rlox.batches.rollout import RolloutBatch, RolloutMinibatch
from rlox.batches.transitions import TransitionBatch

__all__ = ["RolloutBatch", "RolloutMinibatch", "TransitionBatch"]
