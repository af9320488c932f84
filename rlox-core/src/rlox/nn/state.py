"""Modules as a whole: their state as arrays, for checkpoints, and their gradients turned off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from rlox.errors import CheckpointError

__all__ = ["frozen", "load_module_state", "load_parts_state", "module_state", "parts_state"]


def module_state(module: nn.Module) -> dict[str, Any]:
    """Return a copy of a module's parameters and buffers as arrays."""
    return {name: t.detach().cpu().numpy().copy() for name, t in module.state_dict().items()}


def load_module_state(module: nn.Module, state: Mapping[str, Any]) -> None:
    """Copy arrays into a module's parameters and buffers, in place.

    Raises:
        CheckpointError: names or shapes differ; nothing was copied.
    """
    own = module.state_dict()
    problems = [f"'{name}' is missing" for name in own if name not in state]
    problems += [f"'{name}' is unknown" for name in state if name not in own]
    problems += [
        f"'{name}' has shape {np.shape(state[name])}, expected {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in state and np.shape(state[name]) != tuple(tensor.shape)
    ]
    if problems:
        raise CheckpointError("the network differs from the saved one: " + "; ".join(problems))
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(torch.from_numpy(np.array(state[name])))


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

    Half of the work of a backward pass, where another network learns through this one.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
