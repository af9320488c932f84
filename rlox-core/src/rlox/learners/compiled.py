"""The learner backends ``torch`` and ``torch-compile``: the algorithm's own torch code.

With the latter, generated code replaces the operators between two steps of an optimiser; on CUDA
devices it is replayed as CUDA graphs. Compiling takes seconds to minutes, so that
``backend="auto"`` only compiles long trainings of tensor envs on a GPU.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlox.errors import BackendError
from rlox.learners.rollouts import RolloutTask, TorchLearner
from rlox.learners.tensors import TensorCollector, TensorLearner, loss_of
from rlox.learners.transitions import ReplayTask, TorchReplayLearner
from rlox.losses import Objective


def require_learnable(task: object) -> None:
    """Refuse tasks that only their own algorithm can do, in torch.

    Raises:
        BackendError: the task is neither a rollout task nor a replay task.
    """
    if not isinstance(task, (RolloutTask, ReplayTask)):
        raise BackendError(f"a {type(task).__name__} is done in torch by the algorithm itself")


def make_torch_learner(
    task: RolloutTask | ReplayTask,
) -> TorchLearner | TensorLearner | TorchReplayLearner:
    """Return the learner of the backend ``torch`` for a task of either kind.

    Raises:
        BackendError: only the task's own algorithm, in torch, can do it.
    """
    require_learnable(task)
    if isinstance(task, ReplayTask):
        return TorchReplayLearner(task)
    if isinstance(task.collector, TensorCollector):
        return TensorLearner(task, partial(fused, device=task.device))
    return TorchLearner(task)


def make_compiled_learner(
    task: RolloutTask | ReplayTask,
) -> TorchLearner | TensorLearner | TorchReplayLearner:
    """Return the learner of a task of either kind, with compiled loss or steps.

    It computes the same as the ``torch`` backend, up to rounding. The first call compiles, and so
    does a call with tensors of other shapes.

    Raises:
        BackendError: the device is the CPU, for which torch generates C++, and there is no
            compiler; or only the task's own algorithm, in torch, can do it.
    """
    require_learnable(task)
    added = task.parts.added_losses if isinstance(task, ReplayTask) else task.added_losses
    if added:
        raise BackendError(f"it knows no added losses ({', '.join(added.names)})")
    if isinstance(task, ReplayTask):
        _require_compiler(task.parts.device)
        for optimizer in task.parts.optimizers.values():
            # torch would also compile its optimisers' own code, again for every learning rate
            step = torch.compiler.disable(optimizer.step)  # type: ignore[no-untyped-call]
            setattr(optimizer, "step", step)  # noqa: B010
        return TorchReplayLearner(replace(task, objective=_CompiledSteps(task)))
    if isinstance(task.collector, TensorCollector):
        _require_compiler(task.device)
        return TensorLearner(task, partial(fused, device=task.device), compiles=True)
    loss = compiled(loss_of, task.device)

    def update(
        task: RolloutTask, batch: Any, objective: Objective, learning_rate: float, hooks: Any
    ) -> dict[str, float]:
        return plain(task, batch, _Compiled(objective, loss), learning_rate, hooks)

    plain = task.update
    return TorchLearner(replace(task, update=update))


class _CompiledSteps:
    """The steps of a task, each compiled at its first use."""

    def __init__(self, task: ReplayTask) -> None:
        self._objective, self._device = task.objective, task.parts.device

    def __getattr__(self, name: str) -> Any:
        made = compiled(getattr(self._objective, name), self._device)
        setattr(self, name, made)
        return made


@dataclass(frozen=True)
class _Compiled:
    """An objective with a compiled loss."""

    objective: Objective
    compiled: Callable[..., Any]

    def loss(self, policy: Any, minibatch: Any) -> tuple[Tensor, Any]:
        """See :class:`rlox.losses.Objective`."""
        loss, terms = self.compiled(self.objective, policy, minibatch)
        return loss, terms


def fused(function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """Return a function compiled by torch, to be called within a :class:`rlox.nn.programs.Program`.

    Raises:
        BackendError: see :func:`make_compiled_learner`.
    """
    _require_compiler(device)
    return torch.compile(function)


def compiled(function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """Return a function compiled by torch; on CUDA it is replayed as graphs.

    Args:
        function: takes tensors and objects that hold tensors, such as modules, and may write into
            them. It returns a loss, to be used before the next call, and tensors to report, in a
            tuple, a mapping or a dataclass.
        device: device of the tensors.

    Raises:
        BackendError: see :func:`make_compiled_learner`.
    """
    if device.type != "cuda":
        return fused(function, device)
    made = torch.compile(function, mode="reduce-overhead")

    def replayed(*arguments: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        returned = made(*arguments)
        if isinstance(returned, tuple):  # a loss, which is used at once, and its terms
            loss, terms = returned
            return loss, _copied(terms)
        return _copied(returned)

    return replayed


def _copied(value: Any) -> Any:
    if hasattr(value, "clone"):  # before mappings, because a TensorDict is one
        return value.clone()
    if isinstance(value, Mapping):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_copied(part) for part in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return replace(value, **{f.name: _copied(getattr(value, f.name)) for f in fields(value)})


def _require_compiler(device: torch.device) -> None:
    names = (os.environ.get("CXX") or "g++", "g++", "clang++")
    if device.type == "cpu" and not any(map(shutil.which, names)):
        raise BackendError(
            "torch.compile needs a C++ compiler; install g++, or name yours in the variable CXX"
        )
