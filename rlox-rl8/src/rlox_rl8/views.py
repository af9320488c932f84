"""Windows of past observations for models."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Protocol

import torch
from tensordict import TensorDict
from torch import Tensor

ViewKind = Literal["last", "all"]
"""The view at the last step, or at every step."""

ViewMethod = Literal["padded_rolling_window", "rolling_window"]
"""Pad windows at the front with zeros and a mask, or with the first step."""


def rolling_window(x: Tensor, size: int, /, *, step: int = 1) -> Tensor:
    """Return the windows of ``size`` steps (B, (T - size) / step + 1, size, ...) of (B, T, ...)."""
    return x.unfold(1, size, step).movedim(-1, 2)


def pad_whole_sequence(x: Tensor, size: int, /) -> TensorDict:
    """Return a sequence (B, T, ...) padded at the front, for a window of ``size`` at each step.

    It is (B, size - 1 + T) with ``inputs``, 0 where padded, and ``padding_mask``, true there.
    """
    n, steps = x.shape[:2]
    front = x.new_zeros(n, size - 1, *x.shape[2:])
    mask = torch.arange(size - 1 + steps, device=x.device) < size - 1
    parts = {"inputs": torch.cat([front, x], 1), "padding_mask": mask.expand(n, -1)}
    return TensorDict(parts, batch_size=[n, size - 1 + steps], device=x.device)


def pad_last_sequence(x: Tensor, size: int, /) -> TensorDict:
    """Return the window (B, size) of the last ``size`` steps, padded as above."""
    return pad_whole_sequence(x[:, -size:], size)[:, -size:]


class View(Protocol):
    """A kind of windows, of tensors or of TensorDicts (B, T, ...)."""

    @staticmethod
    def apply_all(x: Any, size: int, /) -> Any:
        """Return the windows of ``size`` at all steps, a row each."""

    @staticmethod
    def apply_last(x: Any, size: int, /) -> Any:
        """Return the windows of ``size`` at the last step, B rows."""

    @staticmethod
    def drop_size(size: int, /) -> int:
        """Return the number of steps of each env without a window of ``size``."""
        return 0


class RollingWindow(View):
    """Whole windows: the first ``size - 1`` steps have none."""

    @staticmethod
    def apply_all(x: Any, size: int, /) -> Any:
        """Return (B (T - size + 1), size, ...)."""
        if isinstance(x, Tensor):
            return rolling_window(x, size).flatten(0, 1)
        rows = [x.shape[0], x.shape[1] - size + 1]
        return x.apply(lambda leaf: rolling_window(leaf, size), batch_size=rows).reshape(-1)

    @staticmethod
    def apply_last(x: Any, size: int, /) -> Any:
        """Return (B, size, ...), or fewer steps if the batch is shorter."""
        return x[:, -size:]

    @staticmethod
    def drop_size(size: int, /) -> int:
        """Return ``size - 1``."""
        return size - 1


class PaddedRollingWindow(View):
    """Windows as ``inputs`` and ``padding_mask``, padded at the front of each env's steps."""

    @staticmethod
    def apply_all(x: Any, size: int, /) -> Any:
        """Return (B T) rows of windows; see :func:`pad_whole_sequence`."""
        if isinstance(x, Tensor):
            return RollingWindow.apply_all(pad_whole_sequence(x, size), size)
        parts = {key: PaddedRollingWindow.apply_all(part, size) for key, part in x.items()}
        return TensorDict(parts, batch_size=[x.shape[0] * x.shape[1]], device=x.device)

    @staticmethod
    def apply_last(x: Any, size: int, /) -> Any:
        """Return (B, size) steps; see :func:`pad_last_sequence`."""
        if isinstance(x, Tensor):
            return pad_last_sequence(x, size)
        parts = {key: PaddedRollingWindow.apply_last(part, size) for key, part in x.items()}
        return TensorDict(parts, batch_size=[x.shape[0], size], device=x.device)


class FilledRollingWindow(PaddedRollingWindow):
    """Windows without a mask, padded at the front with the first step."""

    @staticmethod
    def apply_all(x: Any, size: int, /) -> Any:
        """Return (B T, size, ...)."""
        return RollingWindow.apply_all(_filled(x, size - 1), size)

    @staticmethod
    def apply_last(x: Any, size: int, /) -> Any:
        """Return (B, size, ...)."""
        return _filled(x, size - 1)[:, -size:]


def _filled(x: Any, count: int) -> Any:
    return torch.cat([x[:, :1]] * count + [x], 1)


class ViewRequirement:
    """Visible past of one entry.

    Args:
        shift: past steps in addition to the present; 0 passes the entry unchanged.
        method: ``"padded_rolling_window"`` gives ``inputs`` and ``padding_mask``;
            ``"rolling_window"`` repeats the first step at the front instead, without a mask.

    Raises:
        ValueError: ``shift`` is negative, or ``method`` is unknown.
    """

    methods: ClassVar[dict[str, type[View]]] = {
        "padded_rolling_window": PaddedRollingWindow,
        "rolling_window": FilledRollingWindow,
    }

    def __init__(self, *, shift: int = 0, method: ViewMethod = "padded_rolling_window") -> None:
        if shift < 0:
            raise ValueError(f"shift must be at least 0, got {shift}")
        if method not in self.methods:
            raise ValueError(f"method must be one of {', '.join(self.methods)}, got {method!r}")
        self.shift, self.method = shift, self.methods[method]

    @property
    def drop_size(self) -> int:
        """Steps of each env without a view."""
        return self.method.drop_size(self.shift + 1)

    def apply_last(self, key: str | tuple[str, ...], batch: TensorDict, /) -> Any:
        """Return the view of ``batch[key]`` (B, T, ...) at its last step, B rows."""
        item = batch[key]
        return item[:, -1] if self.shift == 0 else self.method.apply_last(item, self.shift + 1)

    def apply_all(self, key: str | tuple[str, ...], batch: TensorDict, /) -> Any:
        """Return the views of ``batch[key]`` (B, T, ...) at every step, B T rows."""
        item = batch[key]
        if self.shift == 0:
            return item.flatten(0, 1) if isinstance(item, Tensor) else item.reshape(-1)
        return self.method.apply_all(item, self.shift + 1)
