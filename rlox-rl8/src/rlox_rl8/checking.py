"""Checks of tensors against specs."""

from __future__ import annotations

from typing import Any

import torch
from torchrl.data import Composite, TensorSpec

__all__ = ["require"]


def require(value: Any, spec: TensorSpec, n: int, name: str, device: torch.device) -> None:
    """Check shape, dtype, device and finiteness of ``n`` rows.

    Args:
        value: a tensor or TensorDict.
        spec: of one row.
        n: rows.
        name: of what returned it.
        device: where it should be.

    Raises:
        ValueError: it does not fit.
    """
    if isinstance(spec, Composite):
        for key in spec.keys():  # noqa: SIM118
            if key not in value.keys():  # noqa: SIM118  # rows come first
                raise ValueError(f"{name} must return '{key}', got {sorted(value.keys())}")
            require(value[key], spec[key], n, f"{name} '{key}'", device)
        return
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{name} must return a tensor, got {type(value).__name__}")
    expected = torch.Size([n, *spec.shape])
    if value.shape != expected:
        raise ValueError(f"{name} must have shape {tuple(expected)}, got {tuple(value.shape)}")
    if value.dtype != spec.dtype:
        raise ValueError(f"{name} must be {spec.dtype}, got {value.dtype}")
    if value.device.type != device.type:
        raise ValueError(f"{name} must be on {device}, got {value.device}")
    if value.is_floating_point() and not value.isfinite().all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
