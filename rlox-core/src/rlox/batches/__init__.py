"""Batches: the data that learners learn from, and the advantages of a rollout."""

from rlox.batches.rollout import (
    RolloutBatch,
    RolloutMinibatch,
    StepRows,
    Unroll,
    add_values,
    estimate_advantages,
    join_unrolls,
    keep_envs,
    on_device,
    step_rows,
    unroll_from_arrays,
    unroll_to_arrays,
)
from rlox.batches.transitions import TransitionBatch

__all__ = [
    "RolloutBatch",
    "RolloutMinibatch",
    "StepRows",
    "TransitionBatch",
    "Unroll",
    "add_values",
    "estimate_advantages",
    "join_unrolls",
    "keep_envs",
    "on_device",
    "step_rows",
    "unroll_from_arrays",
    "unroll_to_arrays",
]
