"""Training and evaluation modes of networks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

__all__ = ["LearningMode"]

_DEPEND = (_NormBase, _DropoutNd, nn.RReLU)


class LearningMode:
    """Training mode for gradient steps, evaluation mode for everything else.

    Dropout and batch normalisation thus compute with whole layers and running moments where a
    network acts, is evaluated or is another's target, as in Stable-Baselines3. Networks that
    compute the same in both modes are left alone.

    Args:
        networks: anything; those count that are modules and may depend on their mode. Networks
            whose parameters do not learn, such as target networks, and parts that are in evaluation
            mode already, such as a frozen normalisation, are never in training mode.
    """

    def __init__(self, networks: Iterable[Any]) -> None:
        depending = [each for each in networks if isinstance(each, nn.Module) and _depends(each)]
        self._learning = [
            module
            for network in depending
            if any(parameter.requires_grad for parameter in network.parameters())
            for module in network.modules()
            if module.training
        ]
        for network in depending:
            network.eval()

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Have the networks in training mode in the block."""
        for module in self._learning:
            module.training = True
        try:
            yield
        finally:
            for module in self._learning:
                module.training = False


def _depends(network: nn.Module) -> bool:
    """Return whether it may compute otherwise in training mode; of a user's classes, any may."""
    return any(
        isinstance(module, _DEPEND) or not type(module).__module__.startswith(("torch.", "rlox"))
        for module in network.modules()
    )
