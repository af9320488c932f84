"""Recorded transitions, checked once and then sampled from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import rlox
from rlox.errors import DatasetError

from rlox_offline.datasets.actions import ActionRange
from rlox_offline.datasets.columns import Columns, complete
from rlox_offline.datasets.returns import (
    DatasetWithReturns,
    discounted_returns,
    first_gap,
    require_succession,
)

__all__ = ["Dataset", "metadata_of", "normalizes", "require_metadata"]

Array = npt.NDArray[Any]

METADATA: dict[str, tuple[type, ...]] = {
    "act_low": (int, float, list),
    "act_high": (int, float, list),
    "n_actions": (int,),
    "env_id": (str,),
    "random_return": (int, float),
    "expert_return": (int, float),
}
"""What may be known beyond the transitions, and the types that it has in files."""


class Dataset:
    """Recorded transitions with what is known of where they come from.

    Satisfies :class:`rlox.offline.dataset.OfflineDataset`: it samples from a
    :class:`rlox.OfflineDatasetBuffer` over a copy of the arrays.

    Args:
        columns: arrays of N rows by name: ``obs`` (N, ...), ``actions`` (N, act_dim), or (N,) of
            integers, ``rewards`` (N,), ``terminated`` and ``truncated`` (N,), of which one may be
            left out, and ``next_obs`` (N, ...). D4RL's and Minari's names for the same are taken
            too. Episodes lie one after the other. A recording that stops within an episode cuts it.
            Without ``next_obs``, what follows within an episode is the next observation, and the
            last transition of a cut episode, which has none, is dropped.
        normalize: whether samples hold (obs - mean) / (std + 0.001) of the dataset's observations;
            ``None`` does it if they are floats.
        act_low: lower bounds of continuous actions, broadcast to (act_dim,).
        act_high: upper bounds of that shape; both or neither.
        n_actions: number of discrete actions; ``None`` takes the largest recorded one plus 1.
        env_id: gymnasium id of the env they were recorded in.
        random_return: mean return of a random policy, for normalised scores.
        expert_return: mean return of an expert, for the same.

    Raises:
        DatasetError: a column is missing, a shape is wrong, a value is not finite, an action is out
            of bounds, or integers are to be normalised.

    Source:
        Normalisation: Fujimoto and Gu 2021, eq. 6.
    """

    def __init__(
        self,
        columns: Mapping[str, npt.ArrayLike],
        *,
        normalize: bool | None = None,
        act_low: npt.ArrayLike | None = None,
        act_high: npt.ArrayLike | None = None,
        n_actions: int | None = None,
        env_id: str | None = None,
        random_return: float | None = None,
        expert_return: float | None = None,
    ) -> None:
        data = complete(columns)
        self.columns: Columns = data
        """The six arrays, not normalised."""
        self.env_id = env_id
        self.random_return = random_return
        self.expert_return = expert_return
        actions = ActionRange(act_low, act_high, n_actions)
        actions.add(data["actions"])
        self.n_actions = actions.n_actions
        self.act_low, self.act_high = actions.low, actions.high
        ends = np.flatnonzero(data["terminated"] | data["truncated"])
        self._starts = np.concatenate([[0], ends[:-1] + 1])
        self._lengths = np.diff(np.concatenate([self._starts, [len(self)]]))
        self._buffer = rlox.OfflineDatasetBuffer(
            data["obs"],
            data["next_obs"],
            data["actions"],
            data["rewards"],
            data["terminated"],
            data["truncated"],
            normalize=normalizes(normalize, data["obs"].dtype),
        )

    def __len__(self) -> int:
        """Return the number of transitions."""
        return len(self.columns["rewards"])

    def sample(self, batch_size: int, seed: int | None = None) -> dict[str, Array]:
        """Draw transitions; see :meth:`rlox.OfflineDatasetBuffer.sample`."""
        return self._buffer.sample(batch_size, seed)

    def sample_trajectories(
        self, batch_size: int, seq_len: int, seed: int | None = None
    ) -> dict[str, Array]:
        """Draw pieces of episodes; see :meth:`rlox.OfflineDatasetBuffer.sample_trajectories`."""
        return self._buffer.sample_trajectories(batch_size, seq_len, seed)

    def with_returns(
        self, gamma: float, reward_scale: float = 1.0, reward_shift: float = 0.0
    ) -> DatasetWithReturns:
        """Return a view whose samples also hold discounted returns; computed again at each call.

        Args:
            gamma: discount γ.
            reward_scale: what rewards are multiplied by.
            reward_shift: what is then added to them.

        Raises:
            DatasetError: the transitions of an episode do not follow each other, or an episode is
                cut and γ is 1.
        """
        require_succession(first_gap(self.columns))
        returns = discounted_returns(self.columns, gamma, reward_scale, reward_shift)
        return DatasetWithReturns(self, returns)

    @property
    def first(self) -> Columns:
        """The first transition, not normalised."""
        return {name: column[0] for name, column in self.columns.items()}

    @property
    def n_terminated(self) -> int:
        """How many episodes reached a terminal state."""
        return int(self.columns["terminated"].sum())

    def n_episodes(self) -> int:
        """Return the number of episodes."""
        return len(self._starts)

    def stats(self) -> dict[str, float]:
        """Return sizes, and statistics of the episodes' returns and lengths."""
        return dict(self._buffer.stats())

    @property
    def obs_mean(self) -> Array | None:
        """(obs_dim,) what samples' observations had subtracted; ``None`` without ``normalize``."""
        return self._buffer.obs_mean

    @property
    def obs_std(self) -> Array | None:
        """(obs_dim,) what they were then divided by, or ``None``."""
        return self._buffer.obs_std

    @cached_property
    def episode_returns(self) -> npt.NDArray[np.float64]:
        """(n_episodes,) undiscounted returns."""
        return np.add.reduceat(self.columns["rewards"].astype(np.float64), self._starts)

    @cached_property
    def episode_lengths(self) -> npt.NDArray[np.int64]:
        """(n_episodes,) in env steps."""
        return self._lengths

    @property
    def initial_obs(self) -> Array:
        """(n_episodes, ...) first observations, not normalised."""
        obs: Array = self.columns["obs"][self._starts]
        return obs

    def episodes(self) -> list[slice]:
        """Return the rows of each episode."""
        return [slice(s, s + n) for s, n in zip(self._starts, self._lengths, strict=True)]

    def metadata(self) -> dict[str, Any]:
        """Return what is known beyond the arrays, as JSON-able keyword arguments of this class."""
        return metadata_of(self)


def normalizes(normalize: bool | None, dtype: np.dtype[Any]) -> bool:
    """Return whether observations are normalised; see :class:`Dataset`.

    Raises:
        DatasetError: integers are to be.
    """
    floats = dtype.kind == "f"
    if normalize and not floats:
        raise DatasetError(f"observations of {dtype} cannot be normalised; pass normalize=False")
    return floats if normalize is None else normalize


def metadata_of(dataset: Any) -> dict[str, Any]:
    """Return what a dataset knows beyond its transitions."""
    values = {name: getattr(dataset, name) for name in METADATA}
    return {
        name: value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
        for name, value in values.items()
        if value is not None
    }


def require_metadata(values: object) -> dict[str, Any]:
    """Return a file's metadata if it is what :meth:`Dataset.metadata` returns.

    Raises:
        DatasetError: it is not.
    """
    if not isinstance(values, dict):
        raise DatasetError(f"the metadata must be a mapping, got {type(values).__name__}")
    for name, value in values.items():
        if not isinstance(value, METADATA.get(name, ())):
            raise DatasetError(f"the metadata has an unexpected {name} = {value!r}")
    return values
