"""Running mean and variance of a stream; the number of threads in kernels.

Chan, Golub, LeVeque 1983, eq. 2.1b.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from rlox.kernels.reference.arrays import Array, in_range, real, shaped, size


class RunningMeanStd:
    """Mean and variance of all arrays of ``shape`` so far.

    The result depends, up to rounding, only on the numbers, not on their division into batches or
    merged objects.

    Args:
        shape: shape of one element; an integer is one dimension, ``()`` is a number.

    Raises:
        ValueError: a size of ``shape`` is less than 1.

    Example:
        >>> running = RunningMeanStd(2)
        >>> running.update([[1.0, 10.0], [3.0, 30.0]])
        >>> running.mean.tolist(), running.var.tolist(), running.count
        ([2.0, 20.0], [1.0, 100.0], 2)
    """

    def __init__(self, shape: SupportsIndex | Sequence[SupportsIndex] | None = None) -> None:
        sizes = () if shape is None else shape if isinstance(shape, Sequence) else (shape,)
        self._shape = tuple(size("every size of shape", n) for n in sizes)
        self._count = 0
        self._mean: Array = np.zeros(self._shape)
        self._squares: Array = np.zeros(self._shape)

    @property
    def count(self) -> int:
        """Number of elements so far."""
        return self._count

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """The mean, ``shape``; 0 before the first element."""
        return np.array(self._mean, np.float64)

    @property
    def var(self) -> npt.NDArray[np.float64]:
        """The population variance, ``shape``; 1 before the first element."""
        if not self._count:
            return np.ones(self._shape)
        return np.asarray(self._squares / self._count, np.float64)

    def update(self, batch: npt.ArrayLike) -> None:
        """Update with a batch.

        Args:
            batch: (B, *shape), finite.

        Raises:
            ValueError: the shape is wrong, a number is not finite, or the variance would not be
                finite; nothing is changed then.
            TypeError: ``batch`` holds something other than real numbers.
        """
        rows = real("batch", batch).astype(np.float64)
        if rows.ndim != 1 + len(self._shape) or rows.shape[1:] != self._shape:
            expected = ", ".join(["B", *map(str, self._shape)]) + ("" if self._shape else ",")
            raise ValueError(f"batch must have shape ({expected}), got {rows.shape}")
        if not np.isfinite(rows).all():
            index = int(np.flatnonzero(~np.isfinite(rows))[0])
            raise ValueError(f"batch must be finite, got a non-finite value at index {index}")
        if not len(rows):
            return
        with np.errstate(over="ignore", invalid="ignore"):
            mean = rows.mean(0)
            self._add("batch", len(rows), mean, np.square(rows - mean).sum(0))

    def merge(self, other: RunningMeanStd) -> None:
        """Add the elements of ``other``.

        Raises:
            ValueError: the shapes differ, or the variance would not be finite; nothing is changed
                then.
        """
        if other._shape != self._shape:
            raise ValueError(f"other must have shape {self._shape} like this, got {other._shape}")
        if other._count:
            with np.errstate(over="ignore", invalid="ignore"):
                self._add("other", other._count, other._mean, other._squares)

    def _add(self, name: str, count: int, mean: Array, squares: Array) -> None:
        total = self._count + count
        if self._count:
            delta = mean - self._mean
            weight = self._count * count / total
            squares = self._squares + squares + np.square(delta) * weight
            mean = self._mean + delta * (count / total)
        if not (np.isfinite(mean).all() and np.isfinite(squares).all()):
            raise ValueError(f"{name} must have a finite variance; its numbers lie too far apart")
        self._count, self._mean, self._squares = total, np.asarray(mean), np.asarray(squares)

    def state(self) -> dict[str, Any]:
        """Return the state: ``count``, ``mean`` and ``squares``, the summed squared deviations."""
        return {"count": self._count, "mean": self.mean, "squares": self._squares.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a :meth:`state`.

        Raises:
            ValueError: it is not a state with this shape; nothing is changed then.
        """
        if missing := {"count", "mean", "squares"} - set(state):
            raise ValueError(f"state must have the key '{min(missing)}'")
        count = int(state["count"])
        if count < 0:
            raise ValueError("state['count'] must be an integer that is not negative")
        mean = shaped("mean", state["mean"], self._shape).astype(np.float64)
        squares = shaped("squares", state["squares"], self._shape).astype(np.float64)
        if not (np.isfinite(mean).all() and np.isfinite(squares).all()):
            raise ValueError("mean and squares must be finite")
        if (squares < 0).any():
            raise ValueError("squares is not a valid state: a sum of squares is not negative")
        if not count and (mean.any() or squares.any()):
            raise ValueError(
                "count is not a valid state: where nothing was seen, mean and squares are 0"
            )
        self._count, self._mean, self._squares = count, mean, squares

    def __repr__(self) -> str:
        return f"RunningMeanStd(shape={list(self._shape)}, count={self._count})"


MAX_THREADS = 1024


def set_num_threads(n: SupportsIndex | None) -> None:
    """Set the maximal number of threads in a call of a Rust kernel; NumPy's kernels use one.

    Results have the same bits for any number. A thread is woken only if it has enough to do.

    Args:
        n: number of threads, including the calling one; ``None`` is one per core.

    Raises:
        TypeError: ``n`` is not an integer.
        ValueError: ``n`` is not in [1, 1024].
    """
    if n is not None:
        in_range("n", size("n", n), 1, MAX_THREADS)


def get_num_threads() -> int:
    """Return the number of threads per call, including the caller's; NumPy's kernels use 1."""
    return 1
