"""Tensor specs of torchrl, imported without side effects on the process."""

# ruff: noqa: PLC0414  # type checkers take `x as x` for a re-export

from __future__ import annotations

import multiprocessing
import warnings
from typing import Any

import torch

_before = multiprocessing.get_start_method(allow_none=True)
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="failed to set start method")
    from torchrl.data import Binary as Binary
    from torchrl.data import Bounded as Bounded
    from torchrl.data import Categorical as Categorical
    from torchrl.data import Composite as Composite
    from torchrl.data import MultiCategorical as MultiCategorical
    from torchrl.data import TensorSpec as TensorSpec
    from torchrl.data import Unbounded as Unbounded
if multiprocessing.get_start_method(allow_none=True) != _before:
    # torchrl sets "spawn", also for a user's own processes, such as gymnasium's AsyncVectorEnv
    multiprocessing.set_start_method(_before, force=True)


def kind_of(spec: Any) -> Any:
    """Return a spec's class among those above, or ``None``.

    The order matters, because ``Binary`` and ``MultiCategorical`` derive from ``Categorical``.
    """
    kinds = (Composite, Binary, MultiCategorical, Categorical, Bounded, Unbounded)
    return next((kind for kind in kinds if isinstance(spec, kind)), None)


def require_rows(value: Any, spec: TensorSpec, n: int, name: str, device: torch.device) -> None:
    """Check ``n`` rows, a tensor or TensorDict, against the spec of one row and a device.

    Raises:
        ValueError: they do not fit, or are not finite; the text begins with ``name``.
    """
    if isinstance(spec, Composite):
        for key in spec.keys():  # noqa: SIM118
            if key not in value.keys():  # noqa: SIM118  # rows come first
                raise ValueError(f"{name} must return '{key}', got {sorted(value.keys())}")
            require_rows(value[key], spec[key], n, f"{name} '{key}'", device)
        return
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{name} must return a tensor, got {type(value).__name__}")
    for what, found, expected in (
        ("have shape", tuple(value.shape), (n, *spec.shape)),
        ("be", value.dtype, spec.dtype),
        ("be on", value.device.type, device.type),
    ):
        if found != expected:
            raise ValueError(f"{name} must {what} {expected}, got {found}")
    if value.is_floating_point() and not value.isfinite().all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
