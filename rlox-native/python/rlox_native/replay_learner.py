"""The learner backend ``native`` for gradient steps on batches of transitions.

It keys on the task's objective, its class and exact fields, and on the code of its methods.
Whatever algorithm brings a known objective gets its steps in Rust, one or two calls each, to the
same parameters up to rounding. Noise comes from the streams that torch would draw it from, and
parameters and moments stay in torch's tensors, so that a training may change its backend at any
checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from rlox.errors import BackendError
from rlox.learners.transitions import ReplayLearner, ReplayTask
from rlox.nn import FlatOptimizer
from torch import nn

from rlox_native.actor_critic_learner import NativeActorCriticLearner
from rlox_native.conservative_learner import NativeConservativeLearner
from rlox_native.digests import require_code
from rlox_native.implicit_learner import NativeImplicitLearner
from rlox_native.q_learner import NativeQLearner


@dataclass(frozen=True)
class Known:
    """How an objective is learnt in Rust."""

    make: Callable[[ReplayTask], ReplayLearner]
    """From a task to what takes its steps."""
    methods: str
    """The objective's methods that it replaces."""
    fields: str
    """The objective's fields, all of which it heeds."""


TD3 = "learn_values learn_policy"
TD3_FIELDS = "target_noise noise_clip tau policy_delay"
OBJECTIVES: dict[str, Known] = {
    "rlox_offpolicy.dqn.QLearning": Known(
        NativeQLearner, "learn act", "double loss noisy tau target_update_interval"
    ),
    "rlox_offpolicy.sac.SoftActorCritic": Known(
        NativeActorCriticLearner, "learn act", "target_entropy tau"
    ),
    "rlox_offpolicy.td3.TwinDelayed": Known(NativeActorCriticLearner, f"{TD3} act", TD3_FIELDS),
    "rlox_offline.td3_bc.TwinDelayedCloning": Known(
        NativeActorCriticLearner, TD3, f"alpha {TD3_FIELDS}"
    ),
    "rlox_offline.iql.ImplicitQ": Known(
        NativeImplicitLearner,
        "learn",
        "learning_rate expectile temperature max_weight tau stochastic",
    ),
    "rlox_offline.cql.ConservativeQ": Known(
        NativeConservativeLearner,
        "learn_policy learn_values",
        "target_entropy penalty_weight penalty_target n_random_actions mode_targets tau bc_steps",
    ),
}
"""By module and class; a test compares the fields with the dataclasses'."""


def make_replay_learner(task: ReplayTask) -> ReplayLearner:
    """Return what takes the task's gradient steps in Rust.

    Raises:
        BackendError: the objective is not one of :data:`OBJECTIVES`, the task is not of default
            networks on the CPU with Adam, or code that Rust computes has been edited.
    """
    known, parts = _find(task.objective), task.parts
    if parts.added_losses:
        raise BackendError(f"it knows no added losses ({', '.join(parts.added_losses.names)})")
    if parts.device.type != "cpu":
        raise BackendError(f"it computes on the CPU, the device is '{parts.device}'")
    learner = known.make(task)
    require_code(parts, "self.minimize")
    for part in (*parts.networks.values(), *parts.optimizers.values()):
        if isinstance(part, (nn.Module, FlatOptimizer)):
            require_code(part)
    require_code(task.objective, *(f"self.{name}" for name in known.methods.split()))
    return learner


def _find(objective: Any) -> Known:
    """Return how an objective is learnt.

    Raises:
        BackendError: its class is unknown, is a subclass of a known one, or has an unknown field.
    """
    kind = type(objective)
    classes = {f"{each.__module__}.{each.__qualname__}": each for each in kind.__mro__}
    name = next((name for name in classes if name in OBJECTIVES), None)
    if name is None:
        names = ", ".join(dict.fromkeys(known.rpartition(".")[-1] for known in OBJECTIVES))
        raise BackendError(f"it knows the objectives {names}, not {kind.__name__}")
    known, base = OBJECTIVES[name], classes[name]
    unknown = [f.name for f in fields(objective) if f.name not in known.fields.split()]
    if unknown:
        of = kind.__name__ if kind is base else f"{kind.__name__}, a subclass of {base.__name__}"
        raise BackendError(f"it does not know the field '{unknown[0]}' of {of}")
    if kind is not base:
        raise BackendError(f"it knows {base.__name__}, not its subclass {kind.__name__}")
    return known
