"""Learner backends: what does an iteration's work.

The ``torch`` backend acts with the policy's own code, minimises the loss that the algorithm wrote
down, and can do every task. Other backends, such as ``native``, do what they recognise, faster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rlox import registry
from rlox.batches.rollout import RolloutBatch, RolloutMinibatch
from rlox.config.model import Config
from rlox.errors import BackendError
from rlox.learners.terms import mean_terms
from rlox.training.hooks import Hooks

if TYPE_CHECKING:
    from rlox.learners.transitions import ReplayTask, TorchReplayLearner
    from rlox.rollouts.actor_critic import ActorCritic

__all__ = [
    "ChosenLearner",
    "Learner",
    "LearningTask",
    "TorchLearner",
    "choose_learner",
    "find_learner",
    "make_torch_learner",
]

KL_TOLERANCE = 1.5
"""Epochs end where the approximate KL passes so many times its target (openai/spinningup ppo)."""

Loss = Callable[[RolloutBatch | RolloutMinibatch, Mapping[str, float]], tuple[Tensor, Any]]


@dataclass(frozen=True)
class LearningTask:
    """What an algorithm learns from every rollout, told so that any backend can do it."""

    algorithm: str
    """Registered name; together with ``config`` it says what ``loss`` computes."""
    config: Config
    agent: ActorCritic
    """Whose policy learns, by its optimiser."""
    loss: Loss
    """From a minibatch and the iteration's rates: a scalar, and a dataclass of its terms."""
    n_epochs: int = 1
    """Passes over the rollout."""
    batch_size: int | None = None
    """Rows of a minibatch; none: the rollout as it is, in one piece."""
    target_kl: float | None = None
    """Ends the epochs when the term ``approx_kl`` passes 1.5 times this; none: never."""
    generator: torch.Generator | None = None
    """Source of the order of rows."""
    actions: np.random.Generator | None = None
    """Source of actions for a backend that draws them itself; none: the policy is to draw them."""

    def order(self, n_rows: int) -> Tensor:
        """Return the rows of the next epoch, (n_rows,) int64, in the order they are visited."""
        if self.batch_size is None:
            return torch.arange(n_rows)
        return torch.randperm(n_rows, generator=self.generator)


class Learner(Protocol):
    """Does an iteration's work: acting in the envs, and the gradient steps."""

    @property
    def releases_gil(self) -> bool:
        """Whether nearly all of an iteration runs without Python's global interpreter lock.

        A sweep then trains in threads of one process, which use as many cores.
        """

    def collect(self, n_steps: int, hooks: Hooks) -> RolloutBatch:
        """Step every env ``n_steps`` times with the policy and report the rollout.

        Args:
            n_steps: steps T per env.
            hooks: to be told of every vector step, and of the rollout's end.
        """

    def update(
        self, batch: RolloutBatch, rates: Mapping[str, float], hooks: Hooks
    ) -> dict[str, float]:
        """Learn from a rollout.

        Args:
            batch: the rollout.
            rates: the scheduled options at present, ``learning_rate`` among them.
            hooks: to be told of every gradient step.

        Returns:
            Means of the loss's terms over the minibatches.
        """


@dataclass(frozen=True)
class ChosenLearner:
    """A learner, with the name of its backend and why it was taken."""

    learner: Learner
    backend: str
    reason: str

    @property
    def releases_gil(self) -> bool:
        """Whether trainings run in threads; see :class:`Learner`."""
        return self.learner.releases_gil

    def collect(self, n_steps: int, hooks: Hooks) -> RolloutBatch:
        """Step the envs; see :class:`Learner`."""
        return self.learner.collect(n_steps, hooks)

    def update(
        self, batch: RolloutBatch, rates: Mapping[str, float], hooks: Hooks
    ) -> dict[str, float]:
        """Learn from a rollout; see :class:`Learner`."""
        return self.learner.update(batch, rates, hooks)

    def __str__(self) -> str:
        return f"{self.backend} ({self.reason})"


def choose_learner(backend: str, task: LearningTask) -> ChosenLearner:
    """Return a learner of the backend called ``backend``; see :func:`find_learner`.

    Raises:
        UnknownNameError: no such backend is registered.
        BackendError: the backend cannot do the task; the text says why.
    """
    return ChosenLearner(*find_learner(backend, task))


def find_learner(backend: str, task: LearningTask | ReplayTask) -> tuple[Any, str, str]:
    """Return a learner, the name of its backend and why it was taken, and log the latter two.

    Args:
        backend: registered name; ``"auto"`` takes the one of highest priority that can do the task.
        task: what is to be learnt.

    Raises:
        UnknownNameError: no such backend is registered.
        BackendError: the backend cannot do the task; the text says why.
    """
    learner, name, reason = _find_learner(backend, task)
    logging.getLogger("rlox").info("the learner is %s (%s)", name, reason)
    return learner, name, reason


def _find_learner(backend: str, task: LearningTask | ReplayTask) -> tuple[Any, str, str]:
    found = registry.get_registry()
    if backend != "auto":
        try:
            learner = found.get("rlox_learner_backends", backend).build(task)
        except BackendError as error:
            raise BackendError(
                f"the learner backend '{backend}' cannot do this: {error}; "
                "backend='auto' takes one that can"
            ) from None
        return learner, backend, "as configured"
    refusals = []
    for registration in found.by_priority("rlox_learner_backends"):
        name = registration.spec.name
        try:
            learner = registration.build(task)
        except BackendError as error:
            refusals.append(f"not {name}: {error}")
            continue
        return learner, name, "; ".join(refusals) or "the fastest there is"
    raise BackendError(f"no learner backend can do this: {'; '.join(refusals) or 'none installed'}")


def make_torch_learner(task: LearningTask | ReplayTask) -> TorchLearner | TorchReplayLearner:
    """Return the learner of the backend ``torch`` for a task of either kind."""
    # imported here: the tasks of off-policy algorithms are found by this module's function
    from rlox.learners.transitions import ReplayTask, TorchReplayLearner

    return TorchReplayLearner(task) if isinstance(task, ReplayTask) else TorchLearner(task)


class TorchLearner:
    """Epochs of minibatch steps down the algorithm's loss, in torch.

    Args:
        task: what is to be learnt.
    """

    releases_gil = False

    def __init__(self, task: LearningTask) -> None:
        self._task = task

    def collect(self, n_steps: int, hooks: Hooks) -> RolloutBatch:
        """Step the envs with the policy's own torch code; see :class:`Learner`."""
        return self._task.agent.collect(n_steps, hooks)

    def update(
        self, batch: RolloutBatch, rates: Mapping[str, float], hooks: Hooks
    ) -> dict[str, float]:
        """Learn from a rollout; see :class:`Learner`."""
        task, collected = self._task, list[Any]()
        for minibatch in self._minibatches(batch):
            loss, terms = task.loss(minibatch, rates)
            collected.append(terms)
            if task.target_kl is not None and terms.approx_kl > KL_TOLERANCE * task.target_kl:
                break
            task.agent.optimizer.step(loss, rates["learning_rate"])
            hooks.train_batch(lambda terms=terms: mean_terms(type(terms), [terms]))  # type: ignore[misc]
        return mean_terms(type(collected[0]), collected)

    def _minibatches(self, batch: RolloutBatch) -> Iterator[RolloutBatch | RolloutMinibatch]:
        for _ in range(self._task.n_epochs):
            if self._task.batch_size is None:
                yield batch
            else:
                yield from batch.sample_minibatches(
                    self._task.batch_size, generator=self._task.generator
                )
