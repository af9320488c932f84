"""The learner backend ``native`` for gradient steps on batches of transitions.

It keys on the task's objective, the type and its exact fields, and on the code of the steps.
Whatever algorithm brings a known objective with steps that Rust computes gets them in Rust, one or
two calls each, to the same parameters up to rounding. Noise comes from the streams that torch would
draw it from, and parameters and moments stay in torch's tensors, so that a training may change its
backend at any checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from rlox.errors import BackendError
from rlox.learners.transitions import Learn
from rlox.learners.value_objectives import (
    CategoricalQLearning,
    ConservativeQ,
    ImplicitQ,
    QLearning,
    QuantileQLearning,
    SoftActorCritic,
    TwinDelayed,
)
from rlox.nn import FlatOptimizer
from torch import nn

from rlox_native.actor_critic_learner import NativeActorCriticLearner
from rlox_native.conservative_learner import NativeConservativeLearner
from rlox_native.digests import require_code
from rlox_native.implicit_learner import NativeImplicitLearner
from rlox_native.q_learner import NativeQLearner

if TYPE_CHECKING:
    from rlox.learners.transitions import ReplayLearner, ReplayTask

__all__ = ["OBJECTIVES", "Known", "make_replay_learner"]


@dataclass(frozen=True)
class Known:
    """How an objective is learnt in Rust."""

    make: Callable[[ReplayTask], ReplayLearner]
    """From a task to what takes its steps."""
    fields: frozenset[str]
    """The objective's fields, all of which it heeds."""


OBJECTIVES: dict[type[Any], Known] = {
    QLearning: Known(NativeQLearner, frozenset({"double", "loss"})),
    SoftActorCritic: Known(NativeActorCriticLearner, frozenset({"target_entropy", "tau"})),
    TwinDelayed: Known(
        NativeActorCriticLearner, frozenset({"target_noise", "noise_clip", "tau", "cloning"})
    ),
    ImplicitQ: Known(
        NativeImplicitLearner,
        frozenset({"learning_rate", "expectile", "temperature", "max_weight", "tau", "stochastic"}),
    ),
    ConservativeQ: Known(
        NativeConservativeLearner,
        frozenset(
            {
                "target_entropy",
                "penalty_weight",
                "penalty_target",
                "n_random_actions",
                "mode_targets",
                "tau",
            }
        ),
    ),
}
"""By type; a test compares the fields with the dataclasses'."""


def make_replay_learner(task: ReplayTask) -> ReplayLearner:
    """Return what takes the task's gradient steps in Rust.

    Raises:
        BackendError: the objective is not one of :data:`OBJECTIVES`, the task is not of default
            networks on the CPU with Adam, or code that Rust computes has been edited.
    """
    known = _find(task.objective)
    if task.added_losses:
        raise BackendError(f"it knows no added losses ({', '.join(task.added_losses.names)})")
    if task.device.type != "cpu":
        raise BackendError(f"it computes on the CPU, the device is '{task.device}'")
    learner = known.make(task)
    require_code(task, "self.added_losses.add")
    for part in task.parts.values():
        if isinstance(part, (nn.Module, FlatOptimizer)):
            require_code(part)
    for kind, step in task.steps.items():
        if kind is not Learn.CLONING:  # which no learner here replaces
            require_code(step, "self.learn")
    return learner


def _find(objective: Any) -> Known:
    """Return how an objective is learnt.

    Raises:
        BackendError: its type is unknown, is a subclass of a known one, or has an unknown field.
    """
    kind = type(objective)
    if kind in (CategoricalQLearning, QuantileQLearning):
        raise BackendError(f"it learns values, not the distributions of returns ({kind.__name__})")
    base = next((each for each in kind.__mro__ if each in OBJECTIVES), None)
    if base is None:
        names = ", ".join(each.__name__ for each in OBJECTIVES)
        raise BackendError(f"it knows the objectives {names}, not {kind.__name__}")
    unknown = [f.name for f in fields(objective) if f.name not in OBJECTIVES[base].fields]
    if unknown:
        of = kind.__name__ if kind is base else f"{kind.__name__}, a subclass of {base.__name__}"
        raise BackendError(f"it does not know the field '{unknown[0]}' of {of}")
    if kind is not base:
        raise BackendError(f"it knows {base.__name__}, not its subclass {kind.__name__}")
    return OBJECTIVES[base]
