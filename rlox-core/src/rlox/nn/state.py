"""Module state as arrays, modes of learning and acting, frozen gradients."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from rlox.errors import CheckpointError

BFLOAT16 = "$bfloat16"
"""Key of the bits of a bfloat16 tensor, a dtype that NumPy lacks."""


def _array(tensor: Tensor) -> Any:
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return {BFLOAT16: tensor.view(torch.uint16).numpy().copy()}
    return tensor.numpy().copy()


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Mapping) and set(value) == {BFLOAT16}:
        return torch.from_numpy(np.array(value[BFLOAT16], np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(value))


def module_state(module: nn.Module) -> dict[str, Any]:
    """Return a copy of a module's parameters and buffers as arrays; bfloat16 as its bits."""
    return {name: _array(tensor) for name, tensor in module.state_dict().items()}


def module_digest(module: nn.Module) -> str:
    """Return the SHA-256 of a module's parameters and buffers, their names, shapes and dtypes.

    Checkpoints hold it in the place of weights that training does not change.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()


def require_digest(module: nn.Module, name: str, saved: str) -> None:
    """Check a module whose weights no checkpoint holds against the one that was trained with.

    Raises:
        CheckpointError: its weights are others.
    """
    if module_digest(module) != saved:
        raise CheckpointError(
            f"the weights of the {name} are not those that the training used; pass the same {name}"
        )


def load_module_state(module: nn.Module, state: Mapping[str, Any]) -> None:
    """Copy arrays into a module's parameters and buffers, in place.

    Raises:
        CheckpointError: names or shapes differ; nothing was copied.
    """
    own = module.state_dict()
    state = {name: _tensor(value) for name, value in state.items()}
    problems = [f"'{name}' is missing" for name in own if name not in state]
    problems += [f"'{name}' is unknown" for name in state if name not in own]
    problems += [
        f"'{name}' has shape {tuple(state[name].shape)}, expected {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in state and state[name].shape != tensor.shape
    ]
    if problems:
        raise CheckpointError("the network differs from the saved one: " + "; ".join(problems))
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(state[name])


def parts_state(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the states of an algorithm's parts by name.

    Args:
        parts: modules, and whatever else has ``state_dict`` and ``load_state_dict``.
    """
    return {
        name: module_state(part) if isinstance(part, nn.Module) else part.state_dict()
        for name, part in parts.items()
    }


def load_parts_state(parts: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Restore the states of an algorithm's parts, in their order.

    Raises:
        CheckpointError: a state is missing or does not fit.
    """
    for name, part in parts.items():
        if name not in state:
            raise CheckpointError(f"there is no state of '{name}'")
        if isinstance(part, nn.Module):
            load_module_state(part, state[name])
        else:
            part.load_state_dict(state[name])


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


_DEPEND = (_NormBase, _DropoutNd, nn.RReLU)


def learning_mode(networks: Iterable[Any]) -> AbstractContextManager[None]:
    """Return a context for gradient steps, in which networks are in training mode.

    Outside it they are in evaluation mode. Dropout and batch normalisation thus compute with whole
    layers and running moments where a network acts, is evaluated or is another's target, as in
    Stable-Baselines3. Networks that compute the same in both modes are left alone.

    Args:
        networks: anything; those count that are modules and may depend on their mode. Networks
            whose parameters do not learn, such as target networks, and parts that are in evaluation
            mode already, such as a frozen normalisation, are never in training mode.
    """
    depending = [each for each in networks if isinstance(each, nn.Module) and _depends(each)]
    learning = [
        module
        for network in depending
        if any(parameter.requires_grad for parameter in network.parameters())
        for module in network.modules()
        if module.training
    ]
    for network in depending:
        network.eval()
    return _Training(learning) if learning else nullcontext()


class _Training:
    """A context in which modules are in training mode."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._modules = modules

    def __enter__(self) -> None:
        for module in self._modules:
            module.training = True

    def __exit__(self, *_: object) -> None:
        for module in self._modules:
            module.training = False


def _depends(network: nn.Module) -> bool:
    """Return whether it may compute otherwise in training mode; of a user's classes, any may."""
    return any(
        isinstance(module, _DEPEND) or not type(module).__module__.startswith(("torch.", "rlox"))
        for module in network.modules()
    )
