"""Running mean and variance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CLIP", "EPSILON", "Moments"]

CLIP = 10.0
"""Bound of normalised numbers."""

EPSILON = 1e-8
"""Added to variances."""


class Moments:
    """Mean and variance of everything seen so far, in float64.

    Before the first update they are 0 and 1, with the weight of 10⁻⁴ observations.

    Args:
        shape: of one observation.
        prior: that weight.

    Source:
        Chan et al. 1979, "Updating formulae and a pairwise algorithm for computing sample
        variances"; openai/baselines, running_mean_std.
    """

    def __init__(self, shape: tuple[int, ...] = (), *, prior: float = 1e-4) -> None:
        self.mean = np.zeros(shape)
        self.variance = np.ones(shape)
        self.count = prior

    def update(self, values: npt.NDArray[Any]) -> None:
        """Take in values (B, *shape)."""
        values = np.asarray(values, np.float64)
        # reductions called directly: np.mean and np.var take longer than all the rest
        count = len(values)
        mean = np.add.reduce(values) / count
        self._take_in(count, mean, np.add.reduce(np.square(values - mean)))

    def merge(self, state: Mapping[str, Any]) -> None:
        """Take in all that other moments have seen.

        Args:
            state: theirs, see :meth:`state_dict`.
        """
        count = float(state["count"])
        if count:
            self._take_in(count, np.asarray(state["mean"]), np.asarray(state["variance"]) * count)

    def _take_in(
        self, count: float, mean: npt.NDArray[Any], squares_of_new: npt.NDArray[Any]
    ) -> None:
        total = self.count + count
        difference = mean - self.mean
        squares = (
            self.variance * self.count
            + squares_of_new
            + np.square(difference) * (self.count * count / total)
        )
        self.mean = self.mean + difference * count / total
        self.variance = squares / total
        self.count = total

    def state_dict(self) -> dict[str, Any]:
        """Return mean, variance and count."""
        return {"mean": self.mean, "variance": self.variance, "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        shape = self.mean.shape
        self.mean = np.array(state["mean"], np.float64).reshape(shape)
        self.variance = np.array(state["variance"], np.float64).reshape(shape)
        self.count = float(state["count"])
