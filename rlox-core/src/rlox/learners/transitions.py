"""Learner backends of algorithms that learn from batches of transitions, as off-policy ones do.

They are chosen as those of :mod:`rlox.learners.rollouts` are, from the same registered backends. The
``torch`` backend calls the steps that the algorithm wrote down; others do what they recognise,
faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from rlox.batches.transitions import TransitionBatch
from rlox.config.model import Config
from rlox.learners.choose import find_learner

__all__ = [
    "ChosenReplayLearner",
    "ReplayLearner",
    "ReplayTask",
    "Step",
    "TorchReplayLearner",
    "choose_replay_learner",
]


@dataclass(frozen=True)
class Step:
    """One of the things that an algorithm does with a batch."""

    learn: Callable[[TransitionBatch, float], Any]
    """Learns from a batch at a learning rate; returns ``terms``."""
    terms: type[Any]
    """A dataclass of scalar tensors without gradient, made with keywords."""


@dataclass(frozen=True)
class ReplayTask:
    """What an algorithm learns from every batch, told so that any backend can do it."""

    algorithm: str
    """Registered name; together with ``config`` it says what ``steps`` compute."""
    config: Config
    device: torch.device
    """Where the networks and the batches are."""
    parts: Mapping[str, Any]
    """The networks and optimisers, by their names in checkpoints."""
    steps: Mapping[str, Step]
    """What the algorithm does with a batch, by name."""
    streams: Mapping[str, torch.Generator] = field(default_factory=dict)
    """Sources of the noise that the steps draw, by what it is for."""
    constants: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the steps depend on and that ``config`` does not have as they use them."""
    set_priorities: Callable[[Tensor], None] | None = None
    """Is told the TD errors of every batch, (B,), or (K, B) of K critics; none: nobody asks."""


class ReplayLearner(Protocol):
    """Takes gradient steps on batches of transitions."""

    def step(self, name: str, batch: TransitionBatch, learning_rate: float) -> Any:
        """Do one of the task's steps.

        Args:
            name: of the step.
            batch: B transitions.
            learning_rate: of every optimiser that takes part, or of those that the step says.

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

    def step(self, name: str, batch: TransitionBatch, learning_rate: float) -> Any:
        """Do one of the task's steps; see :class:`ReplayLearner`."""
        return self.learner.step(name, batch, learning_rate)

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
    """Calls the algorithm's own steps.

    Args:
        task: what is to be learnt.
    """

    def __init__(self, task: ReplayTask) -> None:
        self._steps = task.steps

    def step(self, name: str, batch: TransitionBatch, learning_rate: float) -> Any:
        """Do one of the task's steps; see :class:`ReplayLearner`."""
        return self._steps[name].learn(batch, learning_rate)
