"""Windows of past observations that a model asks for."""

from __future__ import annotations

from typing import Any, Literal

import torch
from tensordict import TensorDict
from torch import Tensor

__all__ = ["ViewKind", "ViewMethod", "ViewRequirement", "pad_last_sequence", "pad_whole_sequence"]

ViewKind = Literal["last", "all"]
"""The view at the last step, or at every step."""

ViewMethod = Literal["padded_rolling_window", "rolling_window"]
"""Windows padded at the front, or whole windows only."""


def pad_whole_sequence(x: Tensor, size: int, /) -> TensorDict:
    """Return the window of the last ``size`` steps at each step.

    Args:
        x: (B, T, ...).
        size: of the windows, W.

    Returns:
        ``inputs`` (B·T, W, ...) and ``padding_mask`` (B·T, W), true where steps before the first
        are padded by 0.
    """
    n, steps = x.shape[:2]
    front = x.new_zeros(n, size - 1, *x.shape[2:])
    windows = torch.cat([front, x], 1).unfold(1, size, 1).movedim(-1, 2)
    at = torch.arange(size, device=x.device) + torch.arange(steps, device=x.device)[:, None]
    mask = (at < size - 1).expand(n, steps, size)
    return TensorDict(
        {
            "inputs": windows.reshape(n * steps, size, *x.shape[2:]),
            "padding_mask": mask.reshape(n * steps, size),
        },
        batch_size=[n * steps],
        device=x.device,
    )


def pad_last_sequence(x: Tensor, size: int, /) -> TensorDict:
    """Return the window of the last ``size`` steps at the last step, see above; rows are B."""
    n, steps = x.shape[:2]
    missing = max(size - steps, 0)
    front = x.new_zeros(n, missing, *x.shape[2:])
    mask = torch.arange(size, device=x.device) < missing
    return TensorDict(
        {
            "inputs": torch.cat([front, x[:, max(steps - size, 0) :]], 1),
            "padding_mask": mask.expand(n, size),
        },
        batch_size=[n],
        device=x.device,
    )


class ViewRequirement:
    """How much of the past a model sees of one entry.

    Args:
        shift: steps of the past beside the present; 0 takes the entry as it is.
        method: ``"padded_rolling_window"`` gives ``inputs`` and ``padding_mask``;
            ``"rolling_window"`` repeats the first step at the front instead, without a mask.

    Raises:
        ValueError: ``shift`` is negative, or ``method`` is unknown.
    """

    def __init__(self, *, shift: int = 0, method: ViewMethod = "padded_rolling_window") -> None:
        if shift < 0:
            raise ValueError(f"shift must be at least 0, got {shift}")
        if method not in ("padded_rolling_window", "rolling_window"):
            raise ValueError(
                f"method must be 'padded_rolling_window' or 'rolling_window', got {method!r}"
            )
        self.shift, self.method = shift, method

    @property
    def drop_size(self) -> int:
        """Steps that have no view; 0, as windows are filled up at the front."""
        return 0

    def apply(self, x: Any, kind: ViewKind) -> Any:
        """Return the views of ``x`` (B, T, ...): B rows for ``"last"``, B·T for ``"all"``."""
        if not isinstance(x, Tensor):
            parts = {key: self.apply(value, kind) for key, value in x.items()}
            rows = x.shape[0] * (x.shape[1] if kind == "all" else 1)
            return TensorDict(parts, batch_size=[rows], device=x.device)
        if self.shift == 0:
            return x[:, -1] if kind == "last" else x.flatten(0, 1)
        size = self.shift + 1
        if self.method == "rolling_window":
            x = torch.cat([x[:, :1].expand(-1, self.shift, *x.shape[2:]), x], 1)
            if kind == "last":
                return x[:, -size:]
            return x.unfold(1, size, 1).movedim(-1, 2).flatten(0, 1)
        return (pad_last_sequence if kind == "last" else pad_whole_sequence)(x, size)

    def apply_last(self, x: Any, /) -> Any:
        """Return the view of ``x`` (B, T, ...) at its last step, B rows."""
        return self.apply(x, "last")

    def apply_all(self, x: Any, /) -> Any:
        """Return the views of ``x`` (B, T, ...) at every step, B·T rows."""
        return self.apply(x, "all")
