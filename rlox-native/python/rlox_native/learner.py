"""The learner backend ``native``: the whole update from a rollout in one Rust call.

It knows the objectives of :data:`OBJECTIVES` and does what they do in torch, to the same parameters
up to rounding: rows are visited in the order that the torch backend draws, and parameters and
moments stay in torch's tensors, so that a training may change its backend at any checkpoint.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
from rlox.batches import rollout
from rlox.batches.rollout import RolloutBatch, Unroll
from rlox.errors import BackendError
from rlox.learners.rollouts import Learner, RolloutTask, TorchLearner
from rlox.learners.tasks import Perceptrons, PerceptronTask
from rlox.learners.tensors import TensorCollector
from rlox.learners.transitions import ReplayLearner, ReplayTask
from rlox.losses import ClippedSurrogate, Objective, PolicyGradient
from rlox.networks.predict import Mode
from rlox.nn import FlatOptimizer
from rlox.ranks import RANKS
from rlox.training.hooks import Hooks

from rlox_native.acting import NativeRollouts, can_act, make_actor
from rlox_native.actor_critics import NativePerceptrons
from rlox_native.default_policies import make_policy_learner
from rlox_native.digests import require_code
from rlox_native.optimizers import step_rule
from rlox_native.replay_learner import make_replay_learner

OBJECTIVES: dict[type[Any], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ClippedSurrogate: (
        ("clip_eps", "vf_coef", "ent_coef", "vf_clip_eps", "dual_clip", "normalize_advantages"),
        ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"),
    ),
    PolicyGradient: (
        ("vf_coef", "ent_coef", "normalize_advantages"),
        ("policy_loss", "value_loss", "entropy"),
    ),
}
"""The objectives that Rust knows, with all their fields and the terms that are reported of each."""


def require_known(objective: Any) -> None:
    """Refuse an objective that is none of :data:`OBJECTIVES`, subclasses included.

    Raises:
        BackendError: it is of another type, or has a field that Rust does not know.
    """
    kind = type(objective)
    if kind not in OBJECTIVES:
        known = " and ".join(known.__name__ for known in OBJECTIVES)
        raise BackendError(f"it knows the objectives {known}, not {kind.__name__}")
    for field in fields(objective):
        if field.name not in OBJECTIVES[kind][0]:
            raise BackendError(f"it does not know the field '{field.name}' of {kind.__name__}")


class NativeLearner:
    """Takes gradient steps in Rust.

    Args:
        task: what is to be learnt.

    Raises:
        BackendError: it is no known objective of a default policy on the CPU with Adam or RMSprop,
            or code that Rust computes has been edited.
    """

    def __init__(self, task: RolloutTask) -> None:
        require_known(task.objective)
        if task.added_losses:
            raise BackendError(f"it knows no added losses ({', '.join(task.added_losses.names)})")
        if task.adaptive_rate is not None:
            raise BackendError("it knows no adaptive_kl")
        if task.device.type != "cpu":
            raise BackendError(f"it computes on the CPU, the device is '{task.device}'")
        if isinstance(task.collector, TensorCollector):
            raise BackendError("it learns from envs of arrays, not of tensors")
        if not isinstance(task.optimizer, FlatOptimizer):
            name = type(task.optimizer).__name__
            raise BackendError(f"it steps all parameters by one optimiser, not by a {name}")
        self._task = task
        self._optimizer = task.optimizer
        self._learner, self._inputs = make_policy_learner(task)
        self._rule = step_rule(self._optimizer)
        self._collector: Any = TorchLearner(task)
        actor: Any = make_actor(task, self._learner) if can_act(task) else None
        self.mode: Mode | None = getattr(actor, "mode", None)
        """Finds the most probable actions in Rust; ``None`` where it does not act."""
        if NativeRollouts.can_step(task):
            self._collector = NativeRollouts(task, self._learner)
            require_code(task, "self.collector.unroll")
        elif actor is not None:
            self._collector = actor
        require_code(rollout, "self.add_values")
        require_code(task.policy)
        if not task.acts_only:
            require_code(task.optimizer)
            require_code(task, "self.objective.loss", "self.update", "self.added_losses.add")

    @property
    def releases_gil(self) -> bool:
        """Whether the envs are stepped in Rust too; see ``rlox.learners.rollouts.Learner``."""
        return isinstance(self._collector, NativeRollouts)

    def collect(self, n_steps: int, hooks: Hooks) -> Unroll:
        """Act in Rust, and step native envs there too; see ``rlox.learners.rollouts.Learner``."""
        unroll: Unroll = self._collector.collect(n_steps, hooks)
        return unroll

    def update(
        self, batch: RolloutBatch | Unroll, objective: Objective, learning_rate: float, hooks: Hooks
    ) -> dict[str, float]:
        """Learn from a rollout; see ``rlox.learners.rollouts.Learner``.

        Raises:
            BackendError: the objective is of another type than those it knows.
        """
        require_known(objective)
        assert isinstance(batch, RolloutBatch)  # what these objectives learn from
        _, names = OBJECTIVES[type(objective)]
        task, n_rows = self._task, len(batch.returns)
        batch_size = task.batch_size or n_rows
        if batch.initial_state is not None:  # rows are whole sequences
            n_rows, batch_size = batch.n_envs, batch_size // batch.n_steps
        orders, streams = self._draw_orders(n_rows)
        if hooks.train_batch_listened:
            # a call for each step, so that a callback sees the parameters between them
            pieces = [row[None] for order in orders for row in _split(order, batch_size)]
        else:
            pieces = [np.stack(orders)]
        arguments = self._arguments(batch, objective, learning_rate)
        step_count, collected, taken = self._optimizer.state()["step"], [], 0
        for piece in pieces:
            means, steps = self._learner.update(
                order=piece, batch_size=batch_size, step=int(step_count), **arguments
            )
            step_count += steps
            taken += steps
            terms = dict(zip(names, means, strict=False))
            collected.append(terms)
            for _ in range(steps):
                hooks.train_batch(lambda terms=terms: terms)  # type: ignore[misc]
            steps_of_epoch = -(-n_rows // batch_size)
            if steps < len(piece) * -(-piece.shape[1] // batch_size):
                # the torch backend would not have drawn the order of later epochs
                assert task.generator is not None
                task.generator.set_state(streams[taken // steps_of_epoch])
                break
        if len(collected) == 1:
            return collected[0]
        return {name: float(np.mean([t[name] for t in collected])) for name in collected[0]}

    def gradients(self) -> npt.NDArray[Any]:
        """Return the clipped gradient of the last minibatch, (P,) like the parameters."""
        return self._learner.gradients()

    def _draw_orders(self, n_rows: int) -> tuple[list[npt.NDArray[np.int64]], list[Any]]:
        """Return each epoch's order of rows; if epochs may end early, the stream after each."""
        orders, streams = [], []
        for _ in range(self._task.n_epochs):
            orders.append(self._task.order(n_rows).numpy())
            if self._task.target_kl is not None and self._task.generator is not None:
                streams.append(self._task.generator.get_state())
        return orders, streams

    def _arguments(
        self, batch: RolloutBatch, objective: Objective, learning_rate: float
    ) -> dict[str, Any]:
        """Return the arguments of the Rust update that stay the same over an iteration."""
        state = self._optimizer.state()
        arguments: dict[str, Any] = {
            "parameters": self._optimizer.parameters.numpy(),
            "obs": self._inputs(batch.obs).numpy(),
            "actions": batch.actions.numpy(),
            "log_probs": batch.log_probs.numpy(),
            "values": batch.values.numpy(),
            "advantages": batch.advantages.numpy(),
            "returns": batch.returns.numpy(),
            "learning_rate": learning_rate,
            "max_grad_norm": self._optimizer.max_grad_norm,
            "target_kl": self._task.target_kl,
            "action_masks": None if batch.action_masks is None else batch.action_masks.numpy(),
            "initial_state": None if batch.initial_state is None else batch.initial_state.numpy(),
            "episode_starts": None
            if batch.episode_starts is None
            else batch.episode_starts.numpy(),
            **{name: getattr(objective, name) for name in OBJECTIVES[type(objective)][0]},
            **self._rule,
        }
        if "alpha" in self._rule:
            arguments["second_moments"] = state["square_avg"].numpy()
        else:
            arguments["first_moments"] = state["exp_avg"].numpy()
            arguments["second_moments"] = state["exp_avg_sq"].numpy()
        return arguments


def _split(order: npt.NDArray[np.int64], batch_size: int) -> list[npt.NDArray[np.int64]]:
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def make_learner(
    task: RolloutTask | ReplayTask | PerceptronTask,
) -> Learner | ReplayLearner | Perceptrons:
    """Return what learns the task in Rust, be it from rollouts or from batches of transitions.

    Raises:
        BackendError: it cannot be learnt here; the text says why.
    """
    if isinstance(task, PerceptronTask):
        return NativePerceptrons(task)
    if RANKS and not getattr(task, "acts_only", False):
        raise BackendError(
            "it takes whole updates in one call, between whose steps the gradients of several "
            "ranks cannot be averaged"
        )
    return make_replay_learner(task) if isinstance(task, ReplayTask) else NativeLearner(task)
