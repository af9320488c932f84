"""The matrix products of gradient steps, alone, as autograd multiplies them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

Tensors = list[torch.Tensor]


def network(*sizes: int) -> Tensors:
    """Return a perceptron's weights, inputs × outputs each."""
    return [torch.randn(*shape) / 16 for shape in pairwise(sizes)]


class Products:
    """Products of batches with weights in torch, gathered first and then done by :meth:`run`.

    Those that share operands in a gradient step share them here; each has a result of its own.

    Args:
        batch_size: rows of a batch.
    """

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self._calls: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def run(self) -> None:
        """Do them one after the other."""
        for left, right, out in self._calls:
            torch.mm(left, right, out=out)

    def forward(self, weights: Tensors, repeats: int = 1) -> Tensors:
        """Gather those of a batch's way through a network, ``repeats`` rows for each of the batch.

        Returns:
            The inputs of all layers, and the outputs.
        """
        values = [torch.randn(repeats * self.batch_size, len(weights[0]))]
        for weight in weights:
            values.append(self._multiply(values[-1], weight))
        return values

    def backward(
        self, weights: Tensors, values: Sequence[torch.Tensor], *, to_inputs: bool = False
    ) -> None:
        """Gather those of the way back: to the weights, or, ``to_inputs``, to the inputs alone."""
        gradient = torch.randn_like(values[-1])
        for layer in reversed(range(len(weights))):
            if not to_inputs:
                self._multiply(values[layer].T, gradient)
            if layer or to_inputs:
                gradient = self._multiply(gradient, weights[layer].T)

    def learn(self, weights: Tensors, repeats: int = 1) -> None:
        """Gather those of a regression."""
        self.backward(weights, self.forward(weights, repeats))

    def _multiply(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        out = torch.empty(left.shape[0], right.shape[1])
        self._calls.append((left, right, out))
        return out
