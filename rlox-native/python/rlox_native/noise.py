"""Standard normal numbers for the Rust learners."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch

__all__ = ["NormalNoise"]


class NormalNoise:
    """Draws the numbers of ``rlox.nn.standard_normal`` into memory that is kept.

    A tensor and its array take torch several times as long as what is drawn for a batch.

    Args:
        width: numbers in a row.
    """

    def __init__(self, width: int) -> None:
        self._numbers = torch.empty(0, width, dtype=torch.float32)
        self._array: npt.NDArray[Any] = self._numbers.numpy()

    def draw(self, rows: int, generator: torch.Generator | None) -> npt.NDArray[Any]:
        """Return an array (rows, width), which the next call writes over."""
        if len(self._array) != rows:
            self._numbers = self._numbers.new_empty(rows, self._numbers.shape[1])
            self._array = self._numbers.numpy()
        self._numbers.normal_(generator=generator)
        return self._array
