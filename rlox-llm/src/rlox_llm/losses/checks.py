"""Checks of what the losses are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlox.errors import suggest
from torch import Tensor

__all__ = ["require_name", "require_shapes"]


def require_name(option: str, value: str, known: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``known``.

    Raises:
        ValueError: it is not; the text has the known ones.
    """
    names = list(known)
    if value not in names:
        raise ValueError(
            f"{option} must be one of {', '.join(names)}, got {value!r}{suggest(str(value), names)}"
        )
    return value


def require_shapes(shape: tuple[int, ...], tensors: Mapping[str, Tensor | None]) -> None:
    """Refuse tensors of another shape, which would broadcast in silence.

    Raises:
        ValueError: a tensor has another shape than ``shape``.
    """
    for name, tensor in tensors.items():
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
