"""Skip connections around modules, one after the other."""

from __future__ import annotations

from torch import Tensor, nn

from rlox_rl8.nn.functional import SkipKind, skip_connection
from rlox_rl8.nn.modules.module import Module

__all__ = ["SequentialSkipConnection"]


class SequentialSkipConnection(Module[[Tensor, Tensor], Tensor]):
    """Joins an input with the output of a layer, then with those of the modules appended.

    Args:
        embed_dim: width of all.
        kind: ``"residual"`` adds; ``"cat"`` joins, and a linear layer returns to the width;
            ``None`` takes the output alone.

    Raises:
        ValueError: the kind is another.
    """

    kind: SkipKind

    def __init__(self, embed_dim: int, kind: SkipKind = "cat") -> None:
        super().__init__()
        if kind not in ("residual", "cat", None):
            raise ValueError(f"kind must be 'residual', 'cat' or None, got {kind!r}")
        self.kind, self._width = kind, embed_dim
        self._layers = nn.ModuleList([self._fan_in()])

    def _fan_in(self) -> nn.Module:
        return nn.Linear(2 * self._width, self._width) if self.kind == "cat" else nn.Identity()

    def append(self, module: nn.Module, /) -> int:
        """Append a module of the width, and return :attr:`out_features`."""
        self._layers += [module, self._fan_in()]
        return self.out_features

    def forward(self, x: Tensor, y: Tensor, /) -> Tensor:
        """Return an input ``x`` and an output ``y`` joined, through all modules."""
        first, *others = self._layers
        out: Tensor = first(skip_connection(x, y, kind=self.kind))
        for module, fan_in in zip(others[::2], others[1::2], strict=True):
            out = fan_in(skip_connection(out, module(out), kind=self.kind))
        return out

    @property
    def in_features(self) -> int:
        """Width of the input."""
        return self._width

    @property
    def out_features(self) -> int:
        """Width of the output."""
        return self._width
