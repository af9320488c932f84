"""Training and evaluation modes of networks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

__all__ = ["learning_mode"]

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
