"""Parent of modules whose calls are typed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, ParamSpec, TypeVar

from torch import nn

__all__ = ["Module"]

P = ParamSpec("P")
T = TypeVar("T")


class Module(ABC, Generic[P, T], nn.Module):
    """A module that type checkers know the arguments and the result of.

    ``Module[[Tensor], Tensor]`` takes a tensor and returns one.
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call :meth:`forward` with torch's hooks."""
        result: T = super().__call__(*args, **kwargs)
        return result

    @abstractmethod
    def forward(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the module computes."""
