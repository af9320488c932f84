"""Uninitialised layers, for weights drawn from a given generator."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

__all__ = ["empty_layer"]

LayerT = TypeVar("LayerT", bound=nn.Module)


def empty_layer(layer_class: type[LayerT], *arguments: int) -> LayerT:
    """Return a layer on the CPU whose parameters hold anything, without drawing any.

    ``torch.nn.utils.skip_init`` does the same, but imports torch's compiler, which takes longer
    than a small training.

    Args:
        layer_class: its parameters are its own, not those of modules in it; it has no buffers.
        arguments: of its constructor.
    """
    layer = layer_class(*arguments, device="meta")
    for name, parameter in layer.named_parameters():
        setattr(layer, name, nn.Parameter(torch.empty(parameter.shape)))
    return layer
