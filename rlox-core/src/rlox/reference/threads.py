"""Number of threads of the NumPy kernels, which is one."""

from __future__ import annotations

import operator
from typing import SupportsIndex

__all__ = ["get_num_threads", "set_num_threads"]

MAX_THREADS = 1024


def set_num_threads(n: SupportsIndex | None) -> None:
    """Set how many threads a call of a Rust kernel may use; NumPy's kernels use one.

    Results are the same bits for any number. A thread is woken only if it has enough to do.

    Args:
        n: number of threads, the calling one included; ``None`` is one per core.

    Raises:
        TypeError: ``n`` is no integer.
        ValueError: ``n`` is not in [1, 1024].
    """
    if n is None:
        return
    if isinstance(n, bool):
        raise TypeError("n must be an integer, got bool")
    value = operator.index(n)
    if not 1 <= value <= MAX_THREADS:
        raise ValueError(f"n must lie in [1, {MAX_THREADS}], got {value}")


def get_num_threads() -> int:
    """Return how many threads a call may use, the calling one included; NumPy's kernels use 1."""
    return 1
