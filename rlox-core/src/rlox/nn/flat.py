"""A torch optimiser over all parameters of a module as one flat tensor.

For the small networks of RL most of an optimiser step is per-tensor overhead: a norm, a scale and
an update for each of a dozen tensors. Here parameters and gradients are views of two flat tensors,
so a step is one norm, one scale and one update, whatever the module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlox.errors import CheckpointError

__all__ = ["FlatOptimizer", "flatten_parameters"]


def flatten_parameters(module: nn.Module) -> Tensor:
    """Make all parameters of a module views of one flat tensor, and return it.

    Afterwards do not move the module to another device.

    Args:
        module: its parameters must share one dtype and device.

    Returns:
        (P,) the parameters in the module's order.

    Raises:
        ValueError: the parameters differ in dtype or device, or there are none.
    """
    return _flatten(list(module.parameters()))


def _flatten(parameters: Sequence[nn.Parameter]) -> Tensor:
    kinds = {(p.dtype, p.device) for p in parameters}
    if len(kinds) != 1:
        raise ValueError(
            f"the parameters must share one dtype and device, got {sorted(map(str, kinds))}"
        )
    flat = torch.cat([p.detach().flatten() for p in parameters])
    for p, part in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
        p.data = part.view(p.shape)
    return flat


class FlatOptimizer:
    """An elementwise torch optimiser over all parameters of a module.

    The module's parameters and gradients become views of :attr:`parameters` and :attr:`gradients`;
    afterwards neither move the module to another device nor set its gradients to none.

    Args:
        module: its trainable parameters must share one dtype and device.
        make_optimizer: from a list of tensors to their optimiser, one that treats every element
            alike, such as ``functools.partial(torch.optim.Adam, eps=1e-5, fused=True)``.
        max_grad_norm: the gradient is scaled down to this Euclidean norm when it is longer; none:
            it is taken as it is.

    Raises:
        ValueError: the parameters differ in dtype or device, or there are none.
    """

    def __init__(
        self,
        module: nn.Module,
        make_optimizer: Callable[[list[Tensor]], torch.optim.Optimizer],
        *,
        max_grad_norm: float | None = None,
    ) -> None:
        parameters = [p for p in module.parameters() if p.requires_grad]
        self.parameters = _flatten(parameters)
        """(P,) all trainable parameters, in the module's order."""
        self.gradients = torch.zeros_like(self.parameters)
        """(P,) their gradients."""
        self._views = parameters
        offset = 0
        for p in parameters:
            span = slice(offset, offset + p.numel())
            p.grad = self.gradients[span].view(p.shape)
            offset += p.numel()
        self.parameters.grad = self.gradients
        self.max_grad_norm = max_grad_norm
        self.torch_optimizer = make_optimizer([self.parameters])
        """The optimiser of :attr:`parameters`."""
        self._state_template = _state_of_one_element(make_optimizer, self.parameters)

    def step(self, loss: Tensor, learning_rate: float) -> None:
        """Take one step down the gradient of ``loss``.

        Args:
            loss: scalar.
            learning_rate: step size.

        Raises:
            RuntimeError: a parameter's gradient is no view of :attr:`gradients` any more.
        """
        self.gradients.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        if any(p.grad is None or p.grad._base is not self.gradients for p in self._views):
            raise RuntimeError(
                "a parameter's gradient was replaced; call FlatOptimizer.step instead of "
                "optimizer.zero_grad() and step()"
            )
        self._take_step(learning_rate)

    def step_down(self, gradients: Tensor, learning_rate: float) -> None:
        """Take one step down gradients (P,) that are known.

        Args:
            gradients: (P,) of the parameters.
            learning_rate: step size.
        """
        self.gradients.copy_(gradients)
        self._take_step(learning_rate)

    def _take_step(self, learning_rate: float) -> None:
        if self.max_grad_norm is not None:
            norm = torch.linalg.vector_norm(self.gradients)
            self.gradients.mul_(torch.clamp(self.max_grad_norm / (norm + 1e-6), max=1.0))
        self.torch_optimizer.param_groups[0]["lr"] = learning_rate
        self.torch_optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """Return what the optimiser keeps, in its own tensors; before the first step all are 0."""
        state = self.torch_optimizer.state
        if not state[self.parameters]:
            state[self.parameters] = {
                name: torch.zeros_like(self.parameters if element.dim() else element)
                for name, element in self._state_template.items()
            }
        return dict(state[self.parameters])

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and the number of steps as arrays; nothing before the first step."""
        state = self.torch_optimizer.state[self.parameters]
        return {name: value.cpu().numpy().copy() for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the moments and the number of steps.

        Raises:
            CheckpointError: the state is another optimiser's or of other parameters.
        """
        if not state:
            self.torch_optimizer.state.pop(self.parameters, None)
            return
        if set(state) != set(self._state_template):
            raise CheckpointError(
                f"the optimiser's state must hold {sorted(self._state_template)}, got "
                f"{sorted(state)}"
            )
        restored = {}
        for name, element in self._state_template.items():
            shape = tuple(self.parameters.shape) if element.dim() else ()
            if np.shape(state[name]) != shape:
                raise CheckpointError(
                    f"the optimiser's {name} has shape {np.shape(state[name])}, expected {shape}"
                )
            restored[name] = torch.tensor(
                np.asarray(state[name]), dtype=element.dtype, device=element.device
            )
        self.torch_optimizer.state[self.parameters] = restored


def _state_of_one_element(
    make_optimizer: Callable[[list[Tensor]], torch.optim.Optimizer], like: Tensor
) -> dict[str, Tensor]:
    """Return what the optimiser keeps for one element, to know its state before the first step."""
    element = torch.zeros(1, dtype=like.dtype, device=like.device)
    element.grad = torch.zeros_like(element)
    optimizer = make_optimizer([element])
    optimizer.step()
    return dict(optimizer.state[element])
