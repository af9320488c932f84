"""The discounted returns that a dataset's episodes reached from each transition on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rlox
from rlox.errors import ConfigError, DatasetError
from rlox.files import open_regular
from rlox.offline.dataset import OfflineDataset

from rlox_offline.datasets.columns import Columns

__all__ = [
    "DatasetWithReturns",
    "append_outcomes",
    "discounted_returns",
    "first_gap",
    "outcomes",
    "require_succession",
    "with_returns",
]

Array = npt.NDArray[Any]

BLOCK_ROWS = 2**16
"""Rows whose returns are computed at a time."""

OUTCOME = np.dtype([("rewards", np.float32), ("terminated", np.bool_), ("truncated", np.bool_)])
"""What returns are computed from."""


def with_returns(dataset: Any, gamma: float, scale: float, shift: float) -> OfflineDataset:
    """Return a dataset whose samples hold returns, as Cal-QL needs them.

    Args:
        dataset: has a method ``with_returns``.
        gamma: discount of the returns.
        scale: multiplies rewards.
        shift: is added to the scaled rewards.

    Raises:
        ConfigError: it has no such method.
    """
    if not hasattr(dataset, "with_returns"):
        raise ConfigError(
            "calibrated=True needs a dataset with a method with_returns, as "
            f"rlox_offline.datasets.Dataset has it, got {type(dataset).__name__}"
        )
    view: OfflineDataset = dataset.with_returns(gamma, scale, shift)
    return view


class DatasetWithReturns:
    """A dataset whose samples also hold the returns from their transitions on.

    Args:
        dataset: draws with a seed the rows that :class:`rlox.OfflineDatasetBuffer` draws with it.
        returns_to_go: (N,) of all its transitions.
    """

    def __init__(self, dataset: OfflineDataset, returns_to_go: Array) -> None:
        self._dataset = dataset
        self.returns_to_go = returns_to_go

    def __len__(self) -> int:
        """Return the number of transitions."""
        return len(self._dataset)

    def sample(self, batch_size: int, seed: int) -> dict[str, Array]:
        """Draw transitions as the dataset does, with ``returns_to_go`` (B,)."""
        chosen = np.random.default_rng(seed).integers(len(self), size=batch_size)
        rows = self._dataset.sample(batch_size, seed)
        return {**rows, "returns_to_go": self.returns_to_go[chosen]}


def discounted_returns(
    rows: Mapping[str, Array] | Array,
    gamma: float,
    reward_scale: float = 1.0,
    reward_shift: float = 0.0,
    *,
    out: Array | None = None,
) -> Array:
    """Return G_t = r_t + γ G_{t+1}, without G_{t+1} if the task ended.

    An episode that was cut is taken to go on with its last reward for ever: G_T = r_T / (1 - γ).

    Args:
        rows: ``rewards``, ``terminated`` and ``truncated`` (N,) of a recording by name, or of
            :data:`OUTCOME`.
        gamma: discount γ.
        reward_scale: what rewards are multiplied by.
        reward_shift: what is then added to them.
        out: (N,) float32 to write into.

    Raises:
        DatasetError: an episode is cut and γ is 1.

    Source:
        The rule for cut episodes: nakamotoo/Cal-QL, ``calc_return_to_go``, where it is that of
        Kitchen, and of AntMaze's and Adroit's episodes without success.
    """
    returns = np.empty(len(rows["rewards"]), np.float32) if out is None else out
    after = 0.0
    for stop in range(len(returns), 0, -BLOCK_ROWS):
        block = slice(max(stop - BLOCK_ROWS, 0), stop)
        terminated, truncated = rows["terminated"][block], rows["truncated"][block]
        rewards = reward_scale * rows["rewards"][block].astype(np.float64) + reward_shift
        cut = truncated & ~terminated
        if cut.any():
            if gamma == 1:
                raise DatasetError(
                    "the dataset has episodes that were cut, whose returns are unknown without a "
                    "discount; choose a gamma below 1"
                )
            rewards[cut] /= 1 - gamma
        found = rlox.compute_discounted_returns(rewards, terminated | truncated, after, gamma)
        returns[block], after = found, float(found[0])
    return returns


def first_gap(rows: Mapping[str, Array]) -> int | None:
    """Return the first row whose episode goes on with another observation, or ``None``.

    Args:
        rows: ``obs``, ``next_obs``, ``terminated`` and ``truncated`` of consecutive transitions.
    """
    differ = rows["next_obs"][:-1] != rows["obs"][1:]
    wrong = differ.any(axis=tuple(range(1, differ.ndim)))
    wrong &= ~(rows["terminated"] | rows["truncated"])[:-1]
    return int(np.argmax(wrong)) if wrong.any() else None


def require_succession(gap: int | None) -> None:
    """Refuse a recording with a gap of :func:`first_gap`.

    Raises:
        DatasetError: there is one.
    """
    if gap is not None:
        raise DatasetError(
            "returns need episodes whose transitions follow each other, but row "
            f"{gap + 1} does not begin with the next observation of row {gap}; mark in 'truncated' "
            "that an episode ends there, or order the rows"
        )


def append_outcomes(path: Path, piece: Columns) -> None:
    """Write rewards and ends of the next transitions of a recording to the end of a file."""
    rows = np.empty(len(piece["rewards"]), OUTCOME)
    for name in OUTCOME.fields or ():
        rows[name] = piece[name]
    with open_regular(path, "ab") as file:
        rows.tofile(file)


def outcomes(path: Path) -> Array:
    """Return what :func:`append_outcomes` wrote, (N,) of :data:`OUTCOME`, without reading it."""
    return np.memmap(path, OUTCOME, "r")
