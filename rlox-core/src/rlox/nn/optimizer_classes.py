"""Torch optimisers: their classes, options and state."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch
from torch import Tensor

__all__ = ["ELEMENTWISE", "class_and_options", "state_of_one_element"]

ELEMENTWISE: tuple[type[torch.optim.Optimizer], ...] = (
    torch.optim.Adadelta,
    torch.optim.Adagrad,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.SGD,
)
"""Classes that treat every element of a parameter alike, whatever tensor it is in."""


def class_and_options(
    make_optimizer: partial[Any],
) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """Return the optimiser's class and all its options, with the defaults of those left out."""
    made = getattr(make_optimizer, "func", None)
    if not (isinstance(made, type) and issubclass(made, torch.optim.Optimizer)):
        raise TypeError(
            "make_optimizer must be a functools.partial of an optimiser's class, such as "
            f"partial(torch.optim.Adam, eps=1e-5), got {make_optimizer!r}"
        )
    options = inspect.signature(make_optimizer).parameters.values()
    return made, {o.name: o.default for o in options if o.default is not o.empty}


def state_of_one_element(make_optimizer: partial[Any], like: Tensor) -> dict[str, Tensor]:
    """Return what the optimiser keeps for one element, to know its state before the first step."""
    element = torch.zeros(1, dtype=like.dtype, device=like.device)
    element.grad = torch.zeros_like(element)
    optimizer = make_optimizer([element])
    optimizer.step()
    return dict(optimizer.state[element])
