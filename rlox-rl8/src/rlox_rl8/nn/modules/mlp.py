"""Perceptrons."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from rlox_rl8.nn.modules.activations import get_activation
from rlox_rl8.nn.modules.module import Module

__all__ = ["MLP"]


class MLP(nn.Sequential, Module[[Tensor], Tensor]):
    """Linear layers with activations between them; the last has none.

    Args:
        input_dim: width of the input.
        hiddens: widths of the layers.
        activation_fn: see :func:`get_activation`.
        norm_layer: class put before each activation, such as ``torch.nn.LayerNorm``.
        bias: whether layers have one.
        dropout: probability after each activation.
        inplace: see :func:`get_activation`.
    """

    def __init__(
        self,
        input_dim: int,
        hiddens: Sequence[int],
        /,
        *,
        activation_fn: str = "relu",
        norm_layer: type[nn.Module] | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        inplace: bool = False,
    ) -> None:
        layers: list[nn.Module] = []
        for width in hiddens[:-1]:
            layers.append(nn.Linear(input_dim, width, bias=bias))
            if norm_layer is not None:
                layers.append(norm_layer(width))
            layers.append(get_activation(activation_fn, inplace=inplace))
            if dropout:
                layers.append(nn.Dropout(dropout))
            input_dim = width
        layers.append(nn.Linear(input_dim, hiddens[-1], bias=bias))
        super().__init__(*layers)
