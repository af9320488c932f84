"""Torch's perceptrons and batches of transitions as the Rust learners take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch
from rlox.errors import BackendError
from rlox.nn import ReluMLP
from torch import nn

from rlox_native.optimizers import DTYPES

if TYPE_CHECKING:
    from rlox.batch import TransitionBatch
    from rlox.replay_learners import ReplayTask

__all__ = [
    "batch_arrays",
    "dtype_of",
    "report_errors",
    "report_terms",
    "require_types",
    "sizes_of",
]


def report_errors(task: ReplayTask, errors: npt.NDArray[Any]) -> None:
    """Tell the TD errors of a batch to who asks for them."""
    if task.set_priorities is not None:
        task.set_priorities(torch.from_numpy(errors))


def report_terms(task: ReplayTask, step: str, **terms: Any) -> Any:
    """Return the numbers that a step gave, as the task's own step would."""
    return task.steps[step].terms(**{name: torch.as_tensor(value) for name, value in terms.items()})


def batch_arrays(batch: TransitionBatch) -> dict[str, Any]:
    """Return a batch as the Rust learners take it."""
    return {
        "obs": batch.obs.numpy(),
        "actions": batch.actions.numpy(),
        "rewards": batch.rewards.numpy(),
        "next_obs": batch.next_obs.numpy(),
        "discounts": batch.discounts.numpy(),
        "weights": batch.weights.numpy() if batch.weights.dim() else None,
    }


def require_types(*expected: tuple[nn.Module, type[nn.Module]]) -> None:
    """Check that networks are of the classes whose computations there are in Rust.

    Raises:
        BackendError: one is of another class, which may compute anything.
    """
    for network, kind in expected:
        if type(network) is not kind:
            name = type(network).__name__
            raise BackendError(f"it learns the default networks, not a {name}")


def sizes_of(mlp: Any) -> list[int]:
    """Return the sizes of a perceptron's layers, inputs first."""
    if type(mlp) is not ReluMLP or any(type(layer) is not nn.Linear for layer in mlp.layers):
        raise BackendError("it learns perceptrons of plain linear layers with ReLU")
    shapes: Any = [layer.weight.shape for layer in mlp.layers]
    return [shapes[0][1], *(n_out for n_out, _ in shapes)]


def dtype_of(network: nn.Module) -> str:
    """Return the name of the dtype that a network computes in."""
    dtype = next(network.parameters()).dtype
    if dtype not in DTYPES:
        raise BackendError(f"it computes in float32 and float64, not {dtype}")
    return DTYPES[dtype]
