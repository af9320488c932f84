"""Learning from rollouts: tasks, and learner backends that collect and update.

The ``torch`` backend acts with the policy's own code, minimises the objective by autograd, and can
do every task. Other backends, such as ``native``, do the objectives that they know, faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rlox.batches.rollout import RolloutBatch, Unroll
from rlox.errors import BackendError
from rlox.learners.tasks import find_learner
from rlox.learners.transitions import ReplayTask, TorchReplayLearner
from rlox.losses import AddedLosses, Objective
from rlox.networks.predict import Mode
from rlox.nn.devices import learning_mode
from rlox.protocols import VecEnv
from rlox.ranks import RANKS
from rlox.training.hooks import Hooks


class Unroller(Protocol):
    """Steps N envs with a policy, as :class:`rlox.rollouts.collector.RolloutCollector` does."""

    env: VecEnv

    def unroll(
        self, policy: Any, n_steps: int, on_step: Callable[[int], None] | None = None
    ) -> Unroll:
        """Step every env ``n_steps`` times and call ``on_step`` after each with N."""


Update = Callable[["RolloutTask", Any, Objective, float, Hooks], dict[str, float]]
"""From a task, a rollout or an unroll, the objective and the learning rate of now, and the hooks to
the means of the loss's terms."""


@dataclass(frozen=True)
class RolloutTask:
    """What an algorithm learns from every rollout, so that any backend can do it.

    The fields say everything: a backend that knows the objective does what :attr:`update` does.
    """

    objective: Objective
    """What is minimised; its numbers may change from one rollout to the next."""
    policy: Any
    """Acts and learns."""
    optimizer: Any
    """Moves the policy's parameters, an :class:`rlox.nn.FlatOptimizer`."""
    collector: Any
    """Steps the envs, an :class:`Unroller`; a backend that does not know it lets it act."""
    update: Update
    """The update in torch. It takes gradient steps as the fields below say."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    """Device of the policy and the batches."""
    n_epochs: int = 1
    """Passes over the rollout."""
    batch_size: int | None = None
    """Rows of a minibatch; ``None`` takes the whole rollout."""
    target_kl: float | None = None
    """Ends the epochs if the term ``approx_kl`` passes 1.5 times this; ``None`` never does."""
    generator: torch.Generator | None = None
    """Source of the order of rows."""
    actions: np.random.Generator | None = None
    """Source of actions for a backend that draws them itself; with ``None`` the policy does."""
    added_losses: AddedLosses = field(default_factory=lambda: AddedLosses(None, ()))
    """Losses of the user's own, which the part ``"policy"`` minimises too."""
    acts_only: bool = False
    """Whether the task is to act for a learner elsewhere: nothing is updated, unrolls hold the true
    final observations, and their values are not asked for."""

    def order(self, n_rows: int) -> Tensor:
        """Return the rows of the next epoch, (n_rows,) int64, in the order they are visited."""
        if self.batch_size is None:
            return torch.arange(n_rows)
        return torch.randperm(n_rows, generator=self.generator)


class Learner(Protocol):
    """Does an iteration's work: acting in the envs, and the gradient steps.

    One may also have an attribute ``mode``, a :data:`rlox.networks.predict.Mode` that predictions
    take in place of the policy's own, or ``None``.
    """

    @property
    def releases_gil(self) -> bool:
        """Whether nearly all of an iteration runs without Python's global interpreter lock.

        A sweep then trains in threads of one process, which use as many cores.
        """

    def collect(self, n_steps: int, hooks: Hooks) -> Unroll:
        """Step every env ``n_steps`` times with the policy.

        Args:
            n_steps: steps T per env.
            hooks: called after every vector step.

        Returns:
            The steps; with values if the backend has computed them.
        """

    def update(
        self, batch: RolloutBatch | Unroll, objective: Objective, learning_rate: float, hooks: Hooks
    ) -> dict[str, float]:
        """Learn from a rollout.

        Args:
            batch: the rollout, or the unroll of a task whose objective learns from those.
            objective: the task's, with the numbers of now.
            learning_rate: of now.
            hooks: called after every gradient step.

        Returns:
            Means of the loss's terms over the minibatches.
        """


@dataclass(frozen=True)
class ChosenLearner:
    """A learner, with the name of its backend and why it was chosen."""

    learner: Learner
    backend: str
    reason: str

    @property
    def releases_gil(self) -> bool:
        """Whether trainings run in threads; see :class:`Learner`."""
        return self.learner.releases_gil

    def collect(self, n_steps: int, hooks: Hooks) -> Unroll:
        """Step the envs; see :class:`Learner`."""
        return self.learner.collect(n_steps, hooks)

    def update(
        self, batch: RolloutBatch | Unroll, objective: Objective, learning_rate: float, hooks: Hooks
    ) -> dict[str, float]:
        """Learn from a rollout; see :class:`Learner`."""
        return self.learner.update(batch, objective, learning_rate, hooks)

    @property
    def mode(self) -> Mode | None:
        """What finds the most probable actions faster than the policy; see :class:`Learner`."""
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


def require_learnable(task: object) -> None:
    """Refuse tasks that their own algorithm does in torch.

    Raises:
        BackendError: the task is neither of rollouts nor of transitions.
    """
    if not isinstance(task, (RolloutTask, ReplayTask)):
        raise BackendError(f"a {type(task).__name__} is done in torch by the algorithm itself")


def make_torch_learner(task: RolloutTask | ReplayTask) -> TorchLearner | TorchReplayLearner:
    """Return the learner of the backend ``torch`` for a task of either kind.

    Raises:
        BackendError: the task is of another kind, which its own algorithm does in torch.
    """
    require_learnable(task)
    return TorchReplayLearner(task) if isinstance(task, ReplayTask) else TorchLearner(task)


class TorchLearner:
    """The policy's own torch code, and the update that the algorithm wrote down.

    For the update the policy is in training mode.

    Args:
        task: what is to be learnt.
    """

    releases_gil = False

    def __init__(self, task: RolloutTask) -> None:
        self._task, self._mode = task, learning_mode([task.policy])

    def collect(self, n_steps: int, hooks: Hooks) -> Unroll:
        """Step the envs with the policy; see :class:`Learner`."""
        task = self._task
        preprocessor = getattr(task.collector, "preprocessor", None)
        if task.acts_only or preprocessor is None or not RANKS:
            unroll: Unroll = task.collector.unroll(task.policy, n_steps, hooks.env_step)
            return unroll
        with preprocessor.sharing():
            shared: Unroll = task.collector.unroll(task.policy, n_steps, hooks.env_step)
            return shared

    def update(
        self, batch: RolloutBatch | Unroll, objective: Objective, learning_rate: float, hooks: Hooks
    ) -> dict[str, float]:
        """Take the algorithm's own gradient steps; see :class:`Learner`."""
        if isinstance(batch, RolloutBatch):
            for ranks in RANKS:  # else one would wait for minibatches that the others do not have
                ranks.require_equal(len(batch.returns), "number of rows in a rollout")
        with self._mode:
            return self._task.update(self._task, batch, objective, learning_rate, hooks)
