"""Argument validation shared by many functions."""

from __future__ import annotations

from numbers import Integral

__all__ = ["require_integer"]


def require_integer(name: str, value: object, *, at_least: int) -> int:
    """Return ``value`` as an int.

    Args:
        name: of the argument, for the error's text.
        value: what the caller passed.
        at_least: its lower bound.

    Raises:
        TypeError: it is no integer; a truth value is none.
        ValueError: it is below the bound.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")
    return int(value)
