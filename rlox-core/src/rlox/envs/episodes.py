"""Episode statistics: returns and lengths."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["EpisodeStatistics"]


class EpisodeStatistics:
    """Returns and lengths of the last finished episodes of N envs.

    Args:
        n_envs: number of envs N.
        window: number of episodes that the means cover.
    """

    def __init__(self, n_envs: int, window: int = 100) -> None:
        self._running_return = np.zeros(n_envs)
        self._running_length = np.zeros(n_envs, dtype=np.int64)
        self._returns: deque[float] = deque(maxlen=window)
        self._lengths: deque[int] = deque(maxlen=window)
        self.finished = 0
        """Number of episodes finished so far."""

    def add(
        self,
        rewards: npt.NDArray[Any],
        ended: npt.NDArray[np.bool_],
        envs: Any = slice(None),
        lost: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Add T vector steps of M of the envs.

        Args:
            rewards: (T, M).
            ended: (T, M) whether an episode ended with the step.
            envs: a slice, or the (M,) indices, of the N envs.
            lost: (T, M) whether the env was lost before the step; its episode is not counted.
                ``None``: none was.
        """
        if not len(rewards):
            return
        totals = self._running_return[envs] + np.cumsum(rewards, 0, dtype=np.float64)
        counted = np.zeros_like(self._running_return[envs])
        begin = -self._running_length[envs]
        for t, i in np.argwhere(ended if lost is None else ended | lost):
            if lost is None or not lost[t, i]:
                self._returns.append(float(totals[t, i] - counted[i]))
                self._lengths.append(int(t + 1 - begin[i]))
                self.finished += 1
            counted[i], begin[i] = totals[t, i], t + 1
        self._running_return[envs] = totals[-1] - counted
        self._running_length[envs] = len(rewards) - begin

    def forget(self, envs: Any) -> None:
        """Drop the running episodes of some envs, a slice or indices, which have been reset."""
        self._running_return[envs] = 0.0
        self._running_length[envs] = 0

    @property
    def mean_return(self) -> float:
        """Mean undiscounted return of the window's episodes; NaN before the first."""
        return float(np.mean(self._returns)) if self._returns else float("nan")

    @property
    def mean_length(self) -> float:
        """Mean length of the window's episodes in env steps; NaN before the first."""
        return float(np.mean(self._lengths)) if self._lengths else float("nan")

    def state_dict(self) -> dict[str, Any]:
        """Return the running sums and the window."""
        return {
            "running_return": self._running_return.copy(),
            "running_length": self._running_length.copy(),
            "returns": np.array(self._returns, dtype=np.float64),
            "lengths": np.array(self._lengths, dtype=np.int64),
            "finished": self.finished,
        }

    def fits(self, state: Mapping[str, Any]) -> bool:
        """Whether a state is that of the statistics of as many envs."""
        return len(state["running_return"]) == len(self._running_return)

    def load_state_dict(self, state: Mapping[str, Any], *, keep_running: bool) -> None:
        """Restore the window, and the running sums when the envs go on where they were."""
        if keep_running:
            self._running_return = np.array(state["running_return"], dtype=np.float64)
            self._running_length = np.array(state["running_length"], dtype=np.int64)
        self._returns.clear()
        self._returns.extend(np.asarray(state["returns"], np.float64).tolist())
        self._lengths.clear()
        self._lengths.extend(np.asarray(state["lengths"], np.int64).tolist())
        self.finished = int(state["finished"])
