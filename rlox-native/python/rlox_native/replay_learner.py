"""The learner backend ``native`` of algorithms that learn from batches of transitions.

It does what the steps in dqn.py, sac.py, td3.py, td3_bc.py, iql.py and cql.py do, in a Rust call or
two each, to the same parameters up to rounding. Noise comes from the streams that torch would draw
it from, and parameters and moments stay in torch's tensors, so that a training may change its
backend at any checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlox.errors import BackendError

from rlox_native.actor_critic_learner import NativeActorCriticLearner
from rlox_native.conservative_learner import NativeConservativeLearner
from rlox_native.implicit_learner import NativeImplicitLearner
from rlox_native.q_learner import NativeQLearner

if TYPE_CHECKING:
    from rlox.learners.transitions import ReplayLearner, ReplayTask

__all__ = ["LEARNERS", "make_replay_learner"]

LEARNERS: dict[str, Callable[[ReplayTask], ReplayLearner]] = {
    "dqn": NativeQLearner,
    **dict.fromkeys(("sac", "td3", "ddpg", "td3_bc"), NativeActorCriticLearner),
    "iql": NativeImplicitLearner,
    "cql": NativeConservativeLearner,
}
"""By the algorithms whose steps there are in Rust."""


def make_replay_learner(task: ReplayTask) -> ReplayLearner:
    """Return what takes the task's gradient steps in Rust.

    Raises:
        BackendError: it is none of :data:`LEARNERS`, of default networks on the CPU with Adam.
    """
    if task.algorithm not in LEARNERS:
        raise BackendError(f"it knows {', '.join(LEARNERS)}, not '{task.algorithm}'")
    if task.device.type != "cpu":
        raise BackendError(f"it computes on the CPU, the device is '{task.device}'")
    return LEARNERS[task.algorithm](task)
