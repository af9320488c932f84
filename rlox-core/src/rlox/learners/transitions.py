"""Gradient steps on batches: objectives, tasks, results and the ``torch`` learner.

Learner backends for these tasks are chosen like those of :mod:`rlox.learners.rollouts`, from the
same registry. ``torch`` calls the objective's own methods; others do the steps of the objectives
they know, faster.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy.typing as npt
import torch
from torch import Tensor, nn

from rlox.learners.tasks import find_learner
from rlox.losses import AddedLosses, Scalar
from rlox.nn.devices import learning_mode

Act = Callable[[Any], npt.NDArray[Any]]
"""Maps observations (N, *shape), tensors or arrays, to actions (N, ...) in the buffer's form."""


@dataclass(frozen=True)
class StepResult:
    """Result of one gradient step; tensors are without gradient."""

    terms: Mapping[str, Scalar]
    """Scalars by name, for the metrics: tensors, or numbers from a learner without torch."""
    errors: Tensor | npt.NDArray[Any] | None = None
    """(B,) TD errors, or (K, B) for K critics; their absolute values are priorities."""
    outputs: Mapping[str, Tensor] | None = None
    """Tensors by name, (B, ...), for the next batch or to write back into the buffer."""


@dataclass(frozen=True)
class Parts:
    """Objects that gradient steps use; the networks are attributes, such as ``parts.critic``."""

    networks: Mapping[str, Any]
    """Networks by name, with target networks and modules of other state that steps change."""
    optimizers: Mapping[str, Any]
    """Optimisers by the name of their network."""
    device: torch.device
    """Device of the networks and the batches."""
    stream: Callable[[str], torch.Generator]
    """Maps a name to a source of noise."""
    added_losses: AddedLosses = field(default_factory=lambda: AddedLosses(None, ()))
    """The user's added losses."""

    def __post_init__(self) -> None:
        vars(self).update({**self.networks, **vars(self)})  # a network may share a field's name

    def minimize(self, name: str, loss: Tensor, batch: Any, learning_rate: float) -> Tensor:
        """Take an optimiser step on a network's loss plus the user's added losses.

        Args:
            name: name of the network.
            loss: scalar.
            batch: batch that the loss was computed from.
            learning_rate: learning rate of the network's optimiser.

        Returns:
            The total loss, without gradient.
        """
        loss = self.added_losses.add(name, loss, self.networks[name], batch)
        self.optimizers[name].step(loss, learning_rate)
        return loss.detach()

    def __getattr__(self, name: str) -> Any:
        names = ", ".join(vars(self).get("networks", ()))
        raise AttributeError(f"there is no network '{name}'; there are {names}")


def with_targets(networks: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return networks and target copies of some, ``<name>_target``, without gradients."""
    targets = {name: copy.deepcopy(networks[name]).requires_grad_(False) for name in names}
    return {**networks, **{f"{name}_target": target for name, target in targets.items()}}


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Let gradients pass through ``module`` in the block, without gradients for its weights.

    Saves half of the backward pass if another network learns through this one.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


class ReplayObjective:
    """An algorithm's objective on every batch; subclasses are frozen dataclasses.

    The fields are all numbers that the gradient steps depend on, and each step is a method
    ``(parts, batch, learning_rate) -> StepResult``. A learner backend that knows the class, all of
    its fields and the code of its methods may take the steps in another way.
    """

    def due(self, gradient_step: int) -> tuple[str, ...]:
        """Return the names of the steps to take with a batch, in order.

        Args:
            gradient_step: number of the batch, from 1 on.
        """
        return ("learn",)

    def act(self, parts: Parts, obs: Any) -> Tensor:
        """Return the actions (N, ...) to explore with, before noise is added: the mode."""
        return self.mode(parts, obs)

    def mode(self, parts: Parts, obs: Any) -> Tensor:
        """Return the best actions (N, ...) for observations (N, *shape).

        As in :meth:`act`, they have the buffer's form: discrete ones counted from 0, components in
        [-1, 1].
        """
        return parts.policy.deterministic(obs)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ReplayTask:
    """An algorithm's task on every batch, complete enough for any backend."""

    objective: Any
    """A :class:`ReplayObjective`."""
    parts: Parts
    """Networks, optimisers and sources of noise for the steps."""


class ReplayLearner(Protocol):
    """Takes gradient steps on batches.

    A learner with a method ``act``, from observations (N, *shape) to the actions (N, ...) that the
    objective's ``act`` returns, acts for the algorithm too. If its attribute ``takes_arrays`` is
    also True, its observations and batches may be NumPy arrays instead of tensors.
    """

    def step(self, name: str, batch: Any, learning_rate: float) -> StepResult:
        """Take one of the objective's gradient steps.

        Args:
            name: name of the step's method.
            batch: a frozen dataclass, such as :class:`rlox.batches.transitions.TransitionBatch`.
            learning_rate: for every optimiser that takes part, or for those the objective names.

        Returns:
            The result of the method.
        """


@dataclass(frozen=True)
class ChosenReplayLearner:
    """A learner, the name of its backend and the reason for the choice."""

    learner: ReplayLearner
    backend: str
    reason: str

    releases_gil: ClassVar[bool] = False
    """Between the steps, Python acts and stores transitions."""

    @cached_property
    def takes_arrays(self) -> bool:
        """Whether observations and batches may stay NumPy arrays; the learner then also acts."""
        return bool(getattr(self.learner, "takes_arrays", False))

    def step(self, name: str, batch: Any, learning_rate: float) -> StepResult:
        """Take one of the objective's gradient steps; see :class:`ReplayLearner`."""
        return self.learner.step(name, batch, learning_rate)

    def acting(self, in_torch: Act) -> Act:
        """Return the function that acts with the networks: the learner's if it has one.

        Args:
            in_torch: the objective's own function, for learners that only learn; it is called
                without gradients.
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
    """Calls the objective's own methods, with the networks in training mode.

    Args:
        task: the task to learn.
    """

    def __init__(self, task: ReplayTask) -> None:
        self._parts, self._objective = task.parts, task.objective
        self._mode = learning_mode(task.parts.networks.values())

    def step(self, name: str, batch: Any, learning_rate: float) -> StepResult:
        """Take one of the objective's gradient steps; see :class:`ReplayLearner`."""
        with self._mode:
            learnt: Any = getattr(self._objective, name)(self._parts, batch, learning_rate)
        if not isinstance(learnt, StepResult):
            raise TypeError(
                f"{name} of {type(self._objective).__name__} must return a StepResult, got "
                f"{type(learnt).__name__}"
            )
        return learnt
