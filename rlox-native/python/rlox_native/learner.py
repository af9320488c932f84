"""The learner backend ``native``: the whole update of PPO or A2C in one Rust call.

It does what the algorithm's torch loss does, to the same parameters up to rounding: rows are
visited in the order that the torch backend draws, and parameters and moments stay in torch's
tensors, so that a training may change its backend at any checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rlox.errors import BackendError
from rlox.networks.actor_critics import ContinuousPolicy, DiscretePolicy
from rlox.nn import TanhMLP

from rlox_native._native import ActorCriticLearner
from rlox_native.acting import NativeActor, can_act
from rlox_native.optimizers import DTYPES, step_rule
from rlox_native.perceptrons import make_rust_learner, require_plain, sizes_of
from rlox_native.rollouts import NativeRollouts

if TYPE_CHECKING:
    from rlox.batches.rollout import RolloutBatch
    from rlox.learners.rollouts import Learner, LearningTask
    from rlox.learners.transitions import ReplayLearner, ReplayTask
    from rlox.training.hooks import Hooks

__all__ = ["NativeLearner", "make_learner"]

TERMS = {
    "ppo": ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"),
    "a2c": ("policy_loss", "value_loss", "entropy"),
}
"""The losses there are, by algorithm, and the terms that each reports."""


class NativeLearner:
    """Takes gradient steps in Rust.

    Args:
        task: what is to be learnt.

    Raises:
        BackendError: it is not PPO or A2C of a default policy on the CPU with Adam or RMSprop.
    """

    def __init__(self, task: LearningTask) -> None:
        if task.algorithm not in TERMS:
            raise BackendError(f"it knows {' and '.join(TERMS)}, not '{task.algorithm}'")
        if task.agent.device.type != "cpu":
            raise BackendError(f"it computes on the CPU, the device is '{task.agent.device}'")
        self._task = task
        self._optimizer = task.agent.optimizer
        self._learner = _make_learner(task)
        self._rule = step_rule(self._optimizer)
        self._collector: Any = task.agent
        if NativeRollouts.can_step(task):
            policy = task.agent.policy
            act_dim = len(policy.log_std) if isinstance(policy, ContinuousPolicy) else None
            self._collector = NativeRollouts(task, self._learner, act_dim)
        elif can_act(task):
            self._collector = NativeActor(task, self._learner)

    @property
    def releases_gil(self) -> bool:
        """Whether the envs are stepped in Rust too; see ``rlox.learners.rollouts.Learner``."""
        return isinstance(self._collector, NativeRollouts)

    def collect(self, n_steps: int, hooks: Hooks) -> RolloutBatch:
        """Act in Rust, and step native envs there too; see ``rlox.learners.rollouts.Learner``."""
        batch: RolloutBatch = self._collector.collect(n_steps, hooks)
        return batch

    def update(
        self, batch: RolloutBatch, rates: Mapping[str, float], hooks: Hooks
    ) -> dict[str, float]:
        """Learn from a rollout; see ``rlox.learners.rollouts.Learner``."""
        task, n_rows = self._task, len(batch.returns)
        batch_size = task.batch_size or n_rows
        orders, streams = self._draw_orders(n_rows)
        if hooks.train_batch_listened:
            # a call for each step, so that a callback sees the parameters between them
            pieces = [row[None] for order in orders for row in _split(order, batch_size)]
        else:
            pieces = [np.stack(orders)]
        arguments = self._arguments(batch, rates)
        step_count, collected, taken = self._optimizer.state()["step"], [], 0
        for piece in pieces:
            means, steps = self._learner.update(
                order=piece, batch_size=batch_size, step=int(step_count), **arguments
            )
            step_count += steps
            taken += steps
            terms = dict(zip(TERMS[task.algorithm], means, strict=False))
            collected.append(terms)
            for _ in range(steps):
                hooks.train_batch(lambda terms=terms: terms)  # type: ignore[misc]
            steps_of_epoch = -(-n_rows // batch_size)
            if steps < len(piece) * -(-piece.shape[1] // batch_size):
                # the torch backend would not have drawn the order of later epochs
                assert task.generator is not None  # target_kl comes with minibatches
                task.generator.set_state(streams[taken // steps_of_epoch])
                break
        return {name: float(np.mean([t[name] for t in collected])) for name in collected[0]}

    def gradients(self) -> npt.NDArray[Any]:
        """Return the clipped gradient of the last minibatch, (P,) like the parameters."""
        return self._learner.gradients()

    def _draw_orders(self, n_rows: int) -> tuple[list[npt.NDArray[np.int64]], list[Any]]:
        """Return the order of rows of each epoch, and the stream's state after drawing it."""
        orders, streams = [], []
        for _ in range(self._task.n_epochs):
            orders.append(self._task.order(n_rows).numpy())
            if self._task.generator is not None:
                streams.append(self._task.generator.get_state())
        return orders, streams

    def _arguments(self, batch: RolloutBatch, rates: Mapping[str, float]) -> dict[str, Any]:
        """Return the arguments of the Rust update that stay the same over an iteration."""
        config: Any = self._task.config
        state = self._optimizer.state()
        arguments: dict[str, Any] = {
            "parameters": self._optimizer.parameters.numpy(),
            "obs": batch.obs.numpy(),
            "actions": batch.actions.numpy(),
            "log_probs": batch.log_probs.numpy(),
            "values": batch.values.numpy(),
            "advantages": batch.advantages.numpy(),
            "returns": batch.returns.numpy(),
            "learning_rate": rates["learning_rate"],
            "max_grad_norm": self._optimizer.max_grad_norm,
            "vf_coef": config.vf_coef,
            "ent_coef": rates["ent_coef"],
            "normalize_advantages": config.normalize_advantages,
            "target_kl": self._task.target_kl,
            "action_masks": None if batch.action_masks is None else batch.action_masks.numpy(),
            **self._rule,
        }
        if "alpha" in self._rule:
            arguments["second_moments"] = state["square_avg"].numpy()
        else:
            arguments["first_moments"] = state["exp_avg"].numpy()
            arguments["second_moments"] = state["exp_avg_sq"].numpy()
        if self._task.algorithm == "ppo":
            arguments["clip_eps"] = rates["clip_eps"]
            arguments["dual_clip"] = config.dual_clip
            arguments["vf_clip_eps"] = config.vf_clip_eps
        return arguments


def _split(order: npt.NDArray[np.int64], batch_size: int) -> list[npt.NDArray[np.int64]]:
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def _make_learner(task: LearningTask) -> ActorCriticLearner:
    """Return the Rust learner for the task's policy."""
    policy, parameters = task.agent.policy, task.agent.optimizer.parameters
    if type(policy) not in (DiscretePolicy, ContinuousPolicy):
        raise BackendError(f"it learns the default MLP policies, not {type(policy).__name__}")
    require_plain(policy)
    sizes = sizes_of(policy.actor, TanhMLP)
    if sizes_of(policy.critic, TanhMLP) != [*sizes[:-1], 1]:
        raise BackendError("it learns policies and value functions of the same widths")
    if [name for name, _ in policy.named_children()] != ["actor", "critic"]:
        raise BackendError("it learns policies of an actor, then a critic, and nothing else")
    if parameters.dtype not in DTYPES:
        raise BackendError(f"it computes in float32 and float64, not {parameters.dtype}")
    obs_dim, *hidden, outputs = sizes
    head = "n_actions" if type(policy) is DiscretePolicy else "act_dim"
    learner = make_rust_learner(
        ActorCriticLearner, obs_dim, hidden, **{head: outputs}, dtype=DTYPES[parameters.dtype]
    )
    if learner.n_parameters != len(parameters):
        raise BackendError("it learns a policy's parameters; some are added, shared or missing")
    return learner


def make_learner(task: LearningTask | ReplayTask) -> Learner | ReplayLearner:
    """Return what learns the task in Rust, be it from rollouts or from batches of transitions.

    Raises:
        BackendError: it cannot be learnt here; the text says why.
    """
    from rlox.learners.transitions import ReplayTask

    from rlox_native.replay_learner import make_replay_learner

    return make_replay_learner(task) if isinstance(task, ReplayTask) else NativeLearner(task)
