"""Reward scaling by the running standard deviation of returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlox.preprocessing.moments import CLIP, EPSILON, Moments

__all__ = ["RewardScaler"]


class RewardScaler:
    """Divides rewards by the standard deviation of discounted returns, and clips them to ±10.

    The returns R_t = γ R_{t-1} + r_t begin at 0 with every episode. Their mean is not subtracted,
    which would change what is best.

    Args:
        n_envs: number of envs N.
        gamma: discount γ in [0, 1].

    Source:
        Engstrom et al. 2020, "Implementation matters in deep policy gradients", sec. 3; Huang et
        al. 2022, continuous details 8 and 9. Numbers are those of Stable-Baselines3's VecNormalize.
    """

    def __init__(self, n_envs: int, gamma: float) -> None:
        self.moments = Moments()
        self._returns = np.zeros(n_envs)
        self._gamma = gamma

    def scale(
        self,
        rewards: npt.NDArray[Any],
        ended: npt.NDArray[np.bool_],
        lost: npt.NDArray[np.bool_] | None = None,
    ) -> npt.NDArray[np.float64]:
        """Take in the rewards (N,) of a step and return them scaled.

        Args:
            rewards: (N,)
            ended: (N,) whether an episode ended with the step.
            lost: (N,) whether the env made no step; its reward is not taken in. ``None``: all did.
        """
        self._returns = self._returns * self._gamma + rewards
        if lost is None:
            self.moments.update(self._returns)
        elif not lost.all():
            self.moments.update(self._returns[~lost])
        self._returns[ended] = 0.0
        scaled = rewards / np.sqrt(self.moments.variance + EPSILON)
        clipped: npt.NDArray[np.float64] = np.clip(scaled, -CLIP, CLIP)
        return clipped

    def forget(self) -> None:
        """Drop the returns of the running episodes: all envs begin new ones."""
        self._returns = np.zeros_like(self._returns)

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and the returns of the running episodes."""
        return {"moments": self.moments.state_dict(), "returns": self._returns.copy()}

    def load_state_dict(self, state: Mapping[str, Any], *, keep_running: bool) -> None:
        """Restore the moments, and the returns if the envs go on where they were."""
        self.moments.load_state_dict(state["moments"])
        self.forget()
        if keep_running:
            self._returns[:] = state["returns"]
