"""Gradient steps on batches: tasks, results and the ``torch`` learner.

Learner backends for these tasks are chosen as those of :mod:`rlox.learners.rollouts` are, from the
same registered ones. ``torch`` calls the steps that the algorithm wrote down. Others do the steps
of the objectives that they know, faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy.typing as npt
import torch
from torch import Tensor

from rlox.learners.tasks import find_learner
from rlox.learners.terms import AddedLosses
from rlox.nn.state import learning_mode

__all__ = [
    "Act",
    "ChosenReplayLearner",
    "Learn",
    "ReplayLearner",
    "ReplayTask",
    "Step",
    "StepResult",
    "TorchReplayLearner",
    "choose_replay_learner",
]


Act = Callable[[Any], npt.NDArray[Any]]
"""From observations (N, *shape), tensors or arrays, to actions (N, ...) as buffers keep them."""


class Learn(Enum):
    """What a gradient step learns; a family may use members of an enum of its own instead."""

    ALL = "all networks in turn"
    VALUES = "the action values"
    POLICY = "the policy up its action values"
    CLONING = "the policy after the dataset's actions"


@dataclass(frozen=True)
class StepResult:
    """What one gradient step returns; tensors are without gradient."""

    terms: Any
    """A dataclass of scalars, for the metrics: tensors, or numbers where torch computes nothing."""
    errors: Tensor | npt.NDArray[Any] | None = None
    """(B,) TD errors, or (K, B) of K critics, whose sizes are priorities."""
    outputs: Mapping[str, Tensor] | None = None
    """Tensors by name, (B, ...), for the next batch or to be written back into the buffer."""


@dataclass(frozen=True)
class Step:
    """One kind of gradient step of an algorithm."""

    learn: Callable[[Any, float], StepResult]
    """Learns from a batch at a learning rate."""
    terms: type[Any]
    """Class of the result's terms, a dataclass made with keywords."""


@dataclass(frozen=True)
class ReplayTask:
    """What an algorithm learns from every batch, as data that any backend can act on."""

    objective: Any
    """A frozen dataclass of every number that the steps depend on, such as
    :class:`rlox.learners.value_objectives.SoftActorCritic`."""
    device: torch.device
    """Device of the networks and the batches."""
    parts: Mapping[str, Any]
    """The networks and optimisers, by the names that the objective documents."""
    steps: Mapping[Any, Step]
    """The gradient steps in torch, by what they learn: members of an enum like :class:`Learn`."""
    streams: Mapping[str, torch.Generator] = field(default_factory=dict)
    """Sources of the noise that the steps draw, by what it is for."""
    added_losses: AddedLosses = field(default_factory=lambda: AddedLosses(None, ()))
    """A user's own losses, which the steps in torch add."""


class ReplayLearner(Protocol):
    """Takes gradient steps on batches.

    One that has a method ``act``, from observations (N, *shape) to the actions (N, ...) that the
    objective says, acts for the algorithm too. If its attribute ``takes_arrays`` is True as well,
    its observations and batches may be of NumPy arrays in the place of tensors.
    """

    def step(self, kind: Enum, batch: Any, learning_rate: float) -> StepResult:
        """Take one of the task's gradient steps.

        Args:
            kind: one of the task's :attr:`ReplayTask.steps`.
            batch: a frozen dataclass, such as :class:`rlox.batches.transitions.TransitionBatch`.
            learning_rate: of every optimiser that takes part, or of those that the objective names.

        Returns:
            What the task's own step returns.
        """


@dataclass(frozen=True)
class ChosenReplayLearner:
    """A learner, with the name of its backend and why it was taken."""

    learner: ReplayLearner
    backend: str
    reason: str

    releases_gil: ClassVar[bool] = False
    """Between the steps, acting and storing transitions are Python's work."""

    @cached_property
    def takes_arrays(self) -> bool:
        """Whether observations and batches may stay NumPy arrays; it acts then."""
        return bool(getattr(self.learner, "takes_arrays", False))

    def step(self, kind: Enum, batch: Any, learning_rate: float) -> StepResult:
        """Take one of the task's gradient steps; see :class:`ReplayLearner`."""
        return self.learner.step(kind, batch, learning_rate)

    def acting(self, in_torch: Act) -> Act:
        """Return what acts with the networks: the learner itself if it can.

        Args:
            in_torch: the algorithm's own way, for learners that only learn; it is called without
                gradients.
        """
        act: Act | None = getattr(self.learner, "act", None)
        return act or torch.no_grad()(in_torch)

    def __str__(self) -> str:
        return f"{self.backend} ({self.reason})"


def choose_replay_learner(backend: str, task: ReplayTask) -> ChosenReplayLearner:
    """Return a learner of the backend called ``backend``; see ``find_learner``.

    Raises:
        UnknownNameError: no such backend is registered.
        BackendError: the backend cannot do the task; the text says why.
    """
    return ChosenReplayLearner(*find_learner(backend, task))


class TorchReplayLearner:
    """Calls the algorithm's own steps, for which the networks are in training mode.

    Args:
        task: what is to be learnt.
    """

    def __init__(self, task: ReplayTask) -> None:
        self._steps, self._mode = task.steps, learning_mode(task.parts.values())

    def step(self, kind: Enum, batch: Any, learning_rate: float) -> StepResult:
        """Take one of the task's gradient steps; see :class:`ReplayLearner`."""
        with self._mode:
            return self._steps[kind].learn(batch, learning_rate)
