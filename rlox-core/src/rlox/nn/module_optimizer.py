"""Optimisers of any torch class, and the choice of a flat one."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlox.errors import CheckpointError
from rlox.nn.clipping import Clip, require_one_bound
from rlox.nn.flat import FlatOptimizer
from rlox.nn.optimizer_classes import ELEMENTWISE, class_and_options
from rlox.ranks import RANKS

__all__ = ["ModuleOptimizer", "make_optimizer"]


class ModuleOptimizer:
    """A torch optimiser of any class over the parameters of a module, tensor by tensor.

    For classes that do not treat every element alike, such as ``torch.optim.Muon``, and for
    parameters of several dtypes or devices; otherwise :class:`FlatOptimizer` is faster.

    Args:
        module: its trainable parameters are learnt.
        make_optimizer: class and options, such as ``functools.partial(torch.optim.Adafactor)``.
        max_grad_norm: the gradient is scaled down to this Euclidean norm when it is longer;
            ``None`` takes it as it is.
        clip: a rule for the gradients in the place of ``max_grad_norm``, see
            :data:`rlox.nn.clipping.Clip`; ``None`` uses ``max_grad_norm``.

    Raises:
        TypeError: ``make_optimizer`` is no partial of an optimiser's class.
        ValueError: there is nothing to learn, or both bounds of the gradient are given.
    """

    def __init__(
        self,
        module: nn.Module,
        make_optimizer: partial[Any],
        *,
        max_grad_norm: float | None = None,
        clip: Clip | None = None,
    ) -> None:
        require_one_bound(max_grad_norm, clip)
        self.optimizer_class, self.options = class_and_options(make_optimizer)
        self.max_grad_norm = max_grad_norm
        self.clip = clip
        self._module = module
        self._found = list(module.parameters())
        self._learnt = [p for p in self._found if p.requires_grad]
        if not self._learnt:
            raise ValueError(f"the {type(module).__name__} has no trainable parameters")
        self.torch_optimizer: torch.optim.Optimizer = make_optimizer(self._learnt)

    def require_views(self) -> None:
        """Check that the module's parameters are the ones that it had.

        Raises:
            RuntimeError: one was replaced, so that steps would not reach it.
        """
        found = list(self._module.parameters())
        if len(found) != len(self._found) or not all(map(operator.is_, found, self._found)):
            raise RuntimeError(
                f"parameters of the {type(self._module).__name__} were replaced, and training "
                "would not reach them; write new values in place, with parameter.data.copy_(values)"
            )

    def is_finite(self) -> bool:
        """Return whether all parameters are finite."""
        return all(bool(p.isfinite().all()) for p in self._learnt)

    def step(self, loss: Tensor, learning_rate: float) -> None:
        """Take one step down the gradient of ``loss`` alone; see :meth:`apply`."""
        self.torch_optimizer.zero_grad()
        self.backward(loss)
        self.apply(learning_rate)

    def backward(self, loss: Tensor, *, copies: bool = False) -> None:
        """Add the gradient of ``loss``, a scalar, to the gradients since the last step.

        Args:
            loss: of the module's parameters.
            copies: copy gradients that are the first since the last step: those of a loss that is
                replayed as a CUDA graph lie where the next replay writes.
        """
        first = [p for p in self._learnt if p.grad is None] if copies else []
        loss.backward()  # type: ignore[no-untyped-call]
        for p in first:
            if p.grad is not None:
                p.grad = p.grad.clone()

    def apply(
        self, learning_rate: float | None = None, *, scaler: torch.amp.GradScaler | None = None
    ) -> None:
        """Average the gradients over ranks, clip them, take one step down them and drop them.

        Args:
            learning_rate: step size of every parameter group; ``None`` takes what
                ``torch_optimizer.param_groups`` says.
            scaler: see :meth:`rlox.nn.FlatOptimizer.apply`.
        """
        for ranks in RANKS:
            for p in self._learnt:
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                ranks.average(p.grad)
        if scaler is not None:
            scaler.unscale_(self.torch_optimizer)
        if self.clip is not None:
            self.clip(self._learnt)
        elif self.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self._learnt, self.max_grad_norm)
        if learning_rate is not None:
            for group in self.torch_optimizer.param_groups:
                group["lr"] = learning_rate
        if scaler is None:
            self.torch_optimizer.step()
        else:
            scaler.step(self.torch_optimizer)
        self.torch_optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Return what the optimiser keeps of each parameter, by its number in the module."""
        state = self.torch_optimizer.state_dict()["state"]
        return {
            str(i): {name: _saved(value) for name, value in kept.items()}
            for i, kept in state.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            CheckpointError: the state is of other parameters.
        """
        unknown = [i for i in state if not i.isdigit() or int(i) >= len(self._learnt)]
        if unknown:
            raise CheckpointError(
                f"the optimiser's state is of parameters {', '.join(unknown)}, but there are "
                f"{len(self._learnt)}"
            )
        own = self.torch_optimizer.state_dict()
        own["state"] = {
            int(i): {name: _restored(value) for name, value in kept.items()}
            for i, kept in state.items()
        }
        self.torch_optimizer.load_state_dict(own)


def _saved(value: Any) -> Any:
    return value.detach().cpu().numpy().copy() if isinstance(value, Tensor) else value


def _restored(value: Any) -> Any:
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value


def make_optimizer(
    module: nn.Module,
    make: partial[Any],
    *,
    max_grad_norm: float | None = None,
    clip: Clip | None = None,
) -> FlatOptimizer | ModuleOptimizer:
    """Return a flat optimiser if the class allows it, else one that goes tensor by tensor.

    Args:
        module: what is learnt.
        make: class and options; see :class:`FlatOptimizer`.
        max_grad_norm: see there.
        clip: see there.
    """
    kind, _ = class_and_options(make)
    parameters = [p for p in module.parameters() if p.requires_grad]
    alike = len({(p.dtype, p.device) for p in parameters}) == 1
    flat = kind in ELEMENTWISE and alike
    made = FlatOptimizer if flat else ModuleOptimizer
    return made(module, make, max_grad_norm=max_grad_norm, clip=clip)
