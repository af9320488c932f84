"""Torch's perceptrons and batches of transitions as the Rust learners take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy.typing as npt
import torch
from rlox.batches.transitions import TransitionBatch
from rlox.errors import BackendError
from rlox.nn import MLP, EnsembleMLP
from torch import nn

LearnerT = TypeVar("LearnerT")

ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu"}

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
PARAMETER_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""Where torch keeps what it calls besides a module's or a parameter's own computation."""


def batch_arrays(batch: TransitionBatch) -> dict[str, Any]:
    """Return a batch, of tensors or of arrays, as the Rust learners take it."""
    fields = {
        "obs": batch.obs,
        "actions": batch.actions,
        "rewards": batch.rewards,
        "next_obs": batch.next_obs,
        "discounts": batch.discounts,
        "weights": batch.weights if batch.weights.ndim else None,
    }
    if isinstance(batch.obs, torch.Tensor):
        return {key: field if field is None else field.numpy() for key, field in fields.items()}
    return fields


def as_array(field: Any) -> npt.NDArray[Any]:
    """Return a field of a batch as an array, which it may be already."""
    array: npt.NDArray[Any] = field.numpy() if isinstance(field, torch.Tensor) else field
    return array


def require_types(*expected: tuple[nn.Module, type[nn.Module]]) -> None:
    """Check that networks are of the classes whose computations there are in Rust, unmodified.

    Raises:
        BackendError: one is of another class, which may compute anything, or is modified.
    """
    for network, kind in expected:
        if type(network) is not kind:
            name = type(network).__name__
            raise BackendError(f"it learns the default networks, not {name}")
        require_plain(network)


def require_plain(network: nn.Module) -> None:
    """Check that a network computes and learns what its classes and parameters say, no more.

    Raises:
        BackendError: a module or a parameter has hooks, a module has a method of its own, or a
            parameter is frozen.
    """
    for name, module in network.named_modules():
        where = f"'{name}'" if name else f"the {type(network).__name__}"
        if any(getattr(module, hooks) for hooks in HOOKS):
            raise BackendError(f"it knows nothing of hooks, which {where} has")
        methods = [own for own in vars(module) if callable(getattr(type(module), own, None))]
        if methods:
            raise BackendError(f"it learns the default networks, {where} has its own {methods[0]}")
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            raise BackendError(f"it learns all of a network's parameters, '{name}' is frozen")
        if any(getattr(parameter, hooks, None) for hooks in PARAMETER_HOOKS):
            raise BackendError(f"it knows nothing of hooks, which '{name}' has")


def require_lstm(memory: nn.Module) -> None:
    """Check that a memory is one LSTM as there is in Rust, whose parameters come in its order.

    Raises:
        BackendError: it is another memory, or has other options.
    """
    if type(memory) is not nn.LSTM:
        raise BackendError(f"the memory that it learns is an LSTM, not a {type(memory).__name__}")
    plain = nn.LSTM(memory.input_size, memory.hidden_size, device="meta")
    if repr(memory) != repr(plain):
        raise BackendError(f"it learns an LSTM of one layer with biases, {plain}, not {memory}")


def make_rust_learner(kind: Callable[..., LearnerT], *sizes: Any, **options: Any) -> LearnerT:
    """Return a learner of a class in Rust.

    Raises:
        BackendError: it does not take networks of such sizes.
    """
    try:
        return kind(*sizes, **options)
    except ValueError as error:
        raise BackendError(str(error)) from None


def sizes_of(mlp: Any, activation: str | None = None, *, activates_last: bool = False) -> list[int]:
    """Return the sizes of the layers of a perceptron or of an ensemble of them, inputs first.

    Args:
        mlp: one of rlox's, or a ``Sequential`` of linear layers and activations in turn.
        activation: the one it must have; ``None``: tanh or ReLU.
        activates_last: whether its last layer must be a hidden one.

    Raises:
        BackendError: it is of another class, or of layers that are not plain ones.
    """
    known = [activation] if activation else [*ACTIVATIONS.values()]
    shapes: list[Any] = []
    if type(mlp) is EnsembleMLP:
        shapes = [weight.shape[1:] for weight in mlp.weights]
    elif type(mlp) in (MLP, nn.Sequential):
        listed = type(mlp) is nn.Sequential
        layers, n_hidden = (mlp[::2], len(mlp) // 2) if listed else (mlp.layers, mlp.n_hidden)
        plain = all(type(layer) is nn.Linear for layer in layers)
        plain = plain and getattr(mlp, "compute_dtype", torch.float32) == torch.float32
        if plain and n_hidden == len(layers) - (not activates_last):
            shapes = [layer.weight.T.shape for layer in layers]
    if not shapes or getattr(mlp, "layer_norm", False) or activation_of(mlp) not in known:
        raise BackendError(
            f"it learns perceptrons of plain linear layers with {' or '.join(known)}, in float32 "
            "and without layer_norm"
        )
    return [shapes[0][0], *(n_out for _, n_out in shapes)]


def activation_of(mlp: Any) -> str | None:
    """Return the name of the activation that a perceptron has after each hidden layer."""
    if type(mlp) is not nn.Sequential:
        return getattr(mlp, "activation", None)
    names = {ACTIVATIONS.get(type(each)) for each in mlp[1::2]}
    return names.pop() if len(names) == 1 else None
