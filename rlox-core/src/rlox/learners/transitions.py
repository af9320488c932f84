"""Gradient steps on batches: objectives, tasks, results and the ``torch`` learner.

Learner backends for these tasks are chosen as those of :mod:`rlox.learners.rollouts` are, from the
same registered ones. ``torch`` calls the objective's own methods. Others do the steps of the
objectives that they know, faster.
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
"""From observations (N, *shape), tensors or arrays, to actions (N, ...) as buffers keep them."""


@dataclass(frozen=True)
class StepResult:
    """What one gradient step returns; tensors are without gradient."""

    terms: Mapping[str, Scalar]
    """Scalars by name, for the metrics: tensors, or numbers where torch computes nothing."""
    errors: Tensor | npt.NDArray[Any] | None = None
    """(B,) TD errors, or (K, B) of K critics, whose sizes are priorities."""
    outputs: Mapping[str, Tensor] | None = None
    """Tensors by name, (B, ...), for the next batch or to be written back into the buffer."""


@dataclass(frozen=True)
class Parts:
    """What gradient steps work on; the networks are attributes, such as ``parts.critic``."""

    networks: Mapping[str, Any]
    """By name, the target networks included, and modules of whatever else the steps change."""
    optimizers: Mapping[str, Any]
    """By the name of the network that they move."""
    device: torch.device
    """Of the networks and the batches."""
    stream: Callable[[str], torch.Generator]
    """From a name to a source of noise."""
    added_losses: AddedLosses = field(default_factory=lambda: AddedLosses(None, ()))
    """A user's own losses."""

    def __post_init__(self) -> None:
        vars(self).update({**self.networks, **vars(self)})  # a network may be called as a field is

    def minimize(self, name: str, loss: Tensor, batch: Any, learning_rate: float) -> Tensor:
        """Take a step of a network down a loss, to which the user's own are added.

        Args:
            name: of the network.
            loss: scalar.
            batch: the batch that it was computed from.
            learning_rate: of the network's optimiser.

        Returns:
            The sum, without gradient.
        """
        loss = self.added_losses.add(name, loss, self.networks[name], batch)
        self.optimizers[name].step(loss, learning_rate)
        return loss.detach()

    def __getattr__(self, name: str) -> Any:
        names = ", ".join(vars(self).get("networks", ()))
        raise AttributeError(f"there is no network '{name}'; there are {names}")


def with_targets(networks: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return networks and a target copy of some, ``<name>_target``, without gradients."""
    targets = {name: copy.deepcopy(networks[name]).requires_grad_(False) for name in names}
    return {**networks, **{f"{name}_target": target for name, target in targets.items()}}


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Let gradients pass through ``module`` in the block without computing those of its weights.

    Half of the work of a backward pass, if another network learns through this one.
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
    """What an algorithm learns from every batch; subclasses are frozen dataclasses.

    Their fields are all numbers that the gradient steps depend on, and each step is a method
    ``(parts, batch, learning_rate) -> StepResult``. A learner backend that knows the class, all of
    its fields and the code of its methods may take the steps in its own way.
    """

    def due(self, gradient_step: int) -> tuple[str, ...]:
        """Return the names of the steps to take with a batch, in their order.

        Args:
            gradient_step: number of the batch, from 1 on.
        """
        return ("learn",)

    def act(self, parts: Parts, obs: Any) -> Tensor:
        """Return the actions (N, ...) to explore with, before noise is added: the mode."""
        return self.mode(parts, obs)

    def mode(self, parts: Parts, obs: Any) -> Tensor:
        """Return the best actions (N, ...) for observations (N, *shape).

        Like those of :meth:`act` they are as buffers keep them, choices counted from 0 and
        components in [-1, 1].
        """
        return parts.policy.deterministic(obs)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ReplayTask:
    """What an algorithm learns from every batch, so that any backend can do it."""

    objective: Any
    """A :class:`ReplayObjective`."""
    parts: Parts
    """What its steps work on."""


class ReplayLearner(Protocol):
    """Takes gradient steps on batches.

    One that has a method ``act``, from observations (N, *shape) to the actions (N, ...) that the
    objective's ``act`` returns, acts for the algorithm too. If its attribute ``takes_arrays`` is
    True as well, its observations and batches may be of NumPy arrays in the place of tensors.
    """

    def step(self, name: str, batch: Any, learning_rate: float) -> StepResult:
        """Take one of the objective's gradient steps.

        Args:
            name: of its method.
            batch: a frozen dataclass, such as :class:`rlox.batches.transitions.TransitionBatch`.
            learning_rate: of every optimiser that takes part, or of those that the objective names.

        Returns:
            What the method returns.
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

    def step(self, name: str, batch: Any, learning_rate: float) -> StepResult:
        """Take one of the objective's gradient steps; see :class:`ReplayLearner`."""
        return self.learner.step(name, batch, learning_rate)

    def acting(self, in_torch: Act) -> Act:
        """Return what acts with the networks: the learner itself if it can.

        Args:
            in_torch: the objective's own way, for learners that only learn; it is called without
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
    """Calls the objective's own methods, for which the networks are in training mode.

    Args:
        task: what is to be learnt.
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
