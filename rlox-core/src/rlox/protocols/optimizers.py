"""Protocol of optimisers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


__all__ = ["Optimizer"]


@runtime_checkable
class Optimizer(Protocol):
    """Moves the parameters of a module; see :class:`rlox.nn.FlatOptimizer`.

    Gradients of several losses, or of several ranks, add up between :meth:`backward` and
    :meth:`apply`.
    """

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of ``loss``, a scalar, to the gradients since the last step."""

    def apply(self, learning_rate: float | None = None) -> None:
        """Clip the gradients, take one step down them and drop them.

        ``None`` takes the learning rate that a scheduler of torch has written.
        """

    def require_views(self) -> None:
        """Raise a RuntimeError if steps would not reach the module's parameters."""

    def is_finite(self) -> bool:
        """Return whether all parameters are finite."""

    def state_dict(self) -> dict[str, Any]:
        """Return what the optimiser keeps, as arrays."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
