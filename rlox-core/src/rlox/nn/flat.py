"""Adam over all parameters of a module as one flat tensor.

For the small networks of RL most of an optimiser step is per-tensor overhead: a norm, a scale and
an Adam update for each of a dozen tensors. Here parameters and gradients are views of two flat
tensors, so a step is one norm, one scale and one update, whatever the module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlox.errors import CheckpointError

__all__ = ["FlatAdam"]


class FlatAdam:
    """Adam (Kingma and Ba 2015, algorithm 1) with clipping of the global gradient norm.

    The module's parameters and gradients become views of :attr:`parameters` and :attr:`gradients`;
    afterwards neither move the module to another device nor set its gradients to none.

    Args:
        module: its trainable parameters must share one dtype and device.
        learning_rate: step size; may be given anew at each :meth:`step`.
        eps: added to the root of the second moment.
        max_grad_norm: the gradient is scaled down to this Euclidean norm when it is longer.

    Raises:
        ValueError: the parameters differ in dtype or device, or there are none.
    """

    def __init__(
        self, module: nn.Module, *, learning_rate: float, eps: float, max_grad_norm: float
    ) -> None:
        parameters = [p for p in module.parameters() if p.requires_grad]
        kinds = {(p.dtype, p.device) for p in parameters}
        if len(kinds) != 1:
            raise ValueError(
                f"the parameters must share one dtype and device, got {sorted(map(str, kinds))}"
            )
        self.parameters = torch.cat([p.detach().flatten() for p in parameters])
        """(P,) all trainable parameters, in the module's order."""
        self.gradients = torch.zeros_like(self.parameters)
        """(P,) their gradients."""
        self._views = parameters
        offset = 0
        for p in parameters:
            span = slice(offset, offset + p.numel())
            p.data = self.parameters[span].view(p.shape)
            p.grad = self.gradients[span].view(p.shape)
            offset += p.numel()
        self.parameters.grad = self.gradients
        self.max_grad_norm = max_grad_norm
        self._adam = torch.optim.Adam([self.parameters], lr=learning_rate, eps=eps, fused=True)

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
                "a parameter's gradient was replaced; call FlatAdam.step instead of "
                "optimizer.zero_grad() and step()"
            )
        norm = torch.linalg.vector_norm(self.gradients)
        self.gradients.mul_(torch.clamp(self.max_grad_norm / (norm + 1e-6), max=1.0))
        self._adam.param_groups[0]["lr"] = learning_rate
        self._adam.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and the number of steps as arrays."""
        state = self._adam.state[self.parameters]
        return {name: value.cpu().numpy().copy() for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the moments and the number of steps.

        Raises:
            CheckpointError: the moments are incomplete or do not have the parameters' shape.
        """
        if not state:
            self._adam.state.pop(self.parameters, None)
            return
        size = tuple(self.parameters.shape)
        shapes = {"step": (), "exp_avg": size, "exp_avg_sq": size}
        if set(state) != set(shapes):
            raise CheckpointError(
                f"the optimiser's state must hold {sorted(shapes)}, got {sorted(state)}"
            )
        for name, shape in shapes.items():
            if np.shape(state[name]) != shape:
                raise CheckpointError(
                    f"the optimiser's {name} has shape {np.shape(state[name])}, expected {shape}"
                )
        dtypes = {"step": torch.float32}  # as fused Adam counts; the moments are as the parameters
        self._adam.state[self.parameters] = {
            name: torch.tensor(
                np.asarray(state[name]),
                dtype=dtypes.get(name, self.parameters.dtype),
                device=self.parameters.device,
            )
            for name in shapes
        }
