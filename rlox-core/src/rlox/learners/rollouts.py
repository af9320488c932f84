"""Learning from rollouts: tasks, and learner backends that collect and update.

The ``torch`` backend acts with the policy's own code, minimises the objective by autograd, and
supports every task. Other backends, such as ``native``, support the objectives they know, faster.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rlox.batches.rollout import RolloutBatch, Unroll
from rlox.learners.tasks import find_learner
from rlox.losses import AdaptiveRate, AddedLosses, Objective
from rlox.networks.predict import Mode
from rlox.nn.devices import learning_mode
from rlox.protocols import VecEnv
from rlox.ranks import RANKS
from rlox.training.hooks import Hooks, Progress


class Unroller(Protocol):
    """Steps N envs with a policy, as :class:`rlox.rollouts.collector.RolloutCollector` does."""

    env: VecEnv

    def unroll(
        self, policy: Any, n_steps: int, on_step: Callable[[int], None] | None = None
    ) -> Unroll:
        """Step every env ``n_steps`` times and call ``on_step`` after each with N."""


Update = Callable[["RolloutTask", Any, Objective, float, Hooks], dict[str, float]]
"""Maps a task, a rollout or an unroll, the objective, the current learning rate and the hooks to
the means of the loss's terms."""


@dataclass(frozen=True)
class RolloutTask:
    """An algorithm's task on every rollout, complete enough for any backend.

    A backend that knows the objective does the same as :attr:`update`, from the fields alone.
    """

    objective: Objective
    """The objective; its coefficients may change from one rollout to the next."""
    policy: Any
    """Policy that acts and learns."""
    optimizer: Any
    """Optimiser of the policy's parameters, an :class:`rlox.nn.FlatOptimizer`."""
    collector: Any
    """Steps the envs, an :class:`Unroller`; a backend that does not know it calls it to act."""
    update: Update
    """The update in torch; its gradient steps follow the fields below."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    """Device of the policy and the batches."""
    n_epochs: int = 1
    """Passes over the rollout."""
    batch_size: int | None = None
    """Rows of a minibatch; ``None`` takes the whole rollout."""
    target_kl: float | None = None
    """Ends the epochs if the term ``approx_kl`` exceeds 1.5 times this; ``None`` never does."""
    adaptive_rate: AdaptiveRate | None = None
    """Multiplies the learning rate of each gradient step."""
    generator: torch.Generator | None = None
    """Source of the random order of rows."""
    actions: np.random.Generator | None = None
    """Source of actions for a backend that samples them itself; ``None``: the policy samples."""
    added_losses: AddedLosses = field(default_factory=lambda: AddedLosses(None, ()))
    """The user's added losses, also minimised by the part ``"policy"``."""
    progress: Progress | None = None
    """Counts of the training, if a learner may decide by its length whether to compile."""
    acts_only: bool = False
    """Whether the task only acts for a learner elsewhere: nothing is updated, and unrolls hold the
    true final observations without their values."""

    def order(self, n_rows: int) -> Tensor:
        """Return the rows of the next epoch, (n_rows,) int64, in the order of visits."""
        if self.batch_size is None:
            return torch.arange(n_rows)
        return torch.randperm(n_rows, generator=self.generator)


class Learner(Protocol):
    """Does the work of an iteration: acting in the envs, and the gradient steps.

    It may also have an attribute ``mode``, a :data:`rlox.networks.predict.Mode` that predictions
    use instead of the policy's own, or ``None``.
    """

    @property
    def releases_gil(self) -> bool:
        """Whether nearly all of an iteration runs without Python's global interpreter lock.

        A sweep then trains in threads of one process, which use several cores.
        """

    def collect(self, n_steps: int, hooks: Hooks) -> Unroll | RolloutBatch:
        """Step every env ``n_steps`` times with the policy.

        Args:
            n_steps: steps T per env.
            hooks: called after every vector step.

        Returns:
            The steps; with values, or with advantages too, if the backend has computed them.
        """

    def update(
        self, batch: RolloutBatch | Unroll, objective: Objective, learning_rate: float, hooks: Hooks
    ) -> dict[str, float]:
        """Learn from a rollout.

        Args:
            batch: the rollout, or the unroll if the task's objective learns from unrolls.
            objective: the task's objective, with current coefficients.
            learning_rate: current learning rate.
            hooks: called after every gradient step.

        Returns:
            Means of the loss's terms over the minibatches.
        """


@dataclass(frozen=True)
class ChosenLearner:
    """A learner, the name of its backend and the reason for the choice."""

    learner: Learner
    backend: str
    reason: str

    @property
    def releases_gil(self) -> bool:
        """Whether trainings can run in threads; see :class:`Learner`."""
        return self.learner.releases_gil

    def collect(self, n_steps: int, hooks: Hooks) -> Unroll | RolloutBatch:
        """Step the envs; see :class:`Learner`."""
        return self.learner.collect(n_steps, hooks)

    def update(
        self, batch: RolloutBatch | Unroll, objective: Objective, learning_rate: float, hooks: Hooks
    ) -> dict[str, float]:
        """Learn from a rollout; see :class:`Learner`."""
        return self.learner.update(batch, objective, learning_rate, hooks)

    @property
    def mode(self) -> Mode | None:
        """Finds the most probable actions faster than the policy; see :class:`Learner`."""
        return getattr(self.learner, "mode", None)

    def __str__(self) -> str:
        return f"{self.backend} ({self.reason})"


def choose_learner(backend: str, task: RolloutTask) -> ChosenLearner:
    """Return a learner of the backend ``backend``; see :func:`rlox.learners.tasks.find_learner`.

    Raises:
        UnknownNameError: no such backend is registered.
        BackendError: the backend cannot do the task; the text says why.
    """
    return ChosenLearner(*find_learner(backend, task))


class TorchLearner:
    """Learner with the policy's own torch code and the algorithm's own update.

    The policy is in training mode during the update.

    Args:
        task: the task to learn.
    """

    releases_gil = False

    def __init__(self, task: RolloutTask) -> None:
        self._task, self._mode = task, learning_mode([task.policy])

    def collect(self, n_steps: int, hooks: Hooks) -> Unroll:
        """Step the envs with the policy; see :class:`Learner`."""
        task = self._task
        preprocessor = getattr(task.collector, "preprocessor", None)
        with nullcontext() if task.acts_only or preprocessor is None else preprocessor.sharing():
            unroll: Unroll = task.collector.unroll(task.policy, n_steps, hooks.env_step)
        return unroll

    def update(
        self, batch: RolloutBatch | Unroll, objective: Objective, learning_rate: float, hooks: Hooks
    ) -> dict[str, float]:
        """Take the algorithm's own gradient steps; see :class:`Learner`."""
        if isinstance(batch, RolloutBatch):
            for ranks in RANKS:  # otherwise a rank waits for minibatches that others lack
                ranks.require_equal(len(batch.returns), "number of rows in a rollout")
        with self._mode:
            return self._task.update(self._task, batch, objective, learning_rate, hooks)
