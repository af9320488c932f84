"""Bounds of a dataset's actions, and their validation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from rlox.errors import DatasetError
from rlox.offline.dataset import check_actions, require_bounds

__all__ = ["ActionRange"]


class ActionRange:
    """Bounds of continuous actions, or the number of discrete ones.

    Args:
        low: lower bounds of continuous actions, broadcast to (act_dim,); ``None`` if
            they are unknown.
        high: upper bounds, given and shaped as ``low``.
        n_actions: number of discrete actions; ``None`` takes the largest one that is added plus 1.

    Raises:
        DatasetError: one bound is given without the other, or ``n_actions`` is not positive.
    """

    def __init__(
        self, low: npt.ArrayLike | None, high: npt.ArrayLike | None, n_actions: int | None
    ) -> None:
        if (low is None) != (high is None):
            raise DatasetError("act_low and act_high belong together; pass both or neither")
        if n_actions is not None and n_actions < 1:
            raise DatasetError(f"n_actions must be at least 1, got {n_actions}")
        self._given = low, high
        self._given_n = n_actions
        self.low: npt.NDArray[np.float32] | None = None
        """(act_dim,) of continuous actions; ``None`` if unknown."""
        self.high: npt.NDArray[np.float32] | None = None
        """Likewise."""
        self.n_actions: int | None = None
        """Of discrete actions."""

    def add(self, actions: npt.NDArray[Any]) -> None:
        """Check some of the actions, (B, act_dim) floats or (B,) integers.

        Raises:
            DatasetError: the bounds do not fit the actions, or an action is out of them.
        """
        if actions.dtype.kind == "i":
            lowest, highest = int(actions.min()), int(actions.max())
            if lowest < 0:
                raise DatasetError(f"discrete actions are counted from 0 on, got {lowest}")
            self.n_actions = self._given_n or max(self.n_actions or 0, highest + 1)
            check_actions(actions, spaces.Discrete(self.n_actions))
            return
        low, high = self._given
        if low is None or high is None:
            return
        self.low, self.high = require_bounds(low, high, actions.shape[1])
        check_actions(actions, spaces.Box(self.low, self.high))
