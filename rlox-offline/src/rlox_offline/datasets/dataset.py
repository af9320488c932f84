"""Recorded transitions, checked once and then sampled from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import rlox
from gymnasium import spaces
from rlox.errors import DatasetError
from rlox.kernels.reference.replay.offline import episode_statistics

from rlox_offline.datasets.columns import Array, Columns, complete
from rlox_offline.datasets.episodes import DatasetWithReturns, discounted_returns, first_gap
from rlox_offline.datasets.protocol import check_actions, require_bounds

METADATA: dict[str, tuple[type, ...]] = {
    "act_low": (int, float, list),
    "act_high": (int, float, list),
    "n_actions": (int,),
    "env_id": (str,),
    "random_return": (int, float),
    "expert_return": (int, float),
}
"""What may be known beyond the transitions, and the types that it has in files."""


class Recorded(ABC):
    """What is known of recorded transitions, which come in one piece or in several.

    Its arguments are those of :class:`Dataset`.
    """

    first: Columns
    """The first transition, not normalised."""
    obs_mean: Array | None = None
    """(obs_dim,) what samples' observations have subtracted; ``None`` without ``normalize``."""
    obs_std: Array | None = None
    """(obs_dim,) what they are then divided by, or ``None``."""
    act_low: npt.NDArray[np.float32] | None = None
    """(act_dim,) lower bounds of continuous actions; ``None`` if unknown."""
    act_high: npt.NDArray[np.float32] | None = None
    """(act_dim,) upper bounds, or ``None``."""
    n_actions: int | None = None
    """Number of discrete actions."""

    def __init__(
        self,
        normalize: bool | None = None,
        act_low: npt.ArrayLike | None = None,
        act_high: npt.ArrayLike | None = None,
        n_actions: int | None = None,
        env_id: str | None = None,
        random_return: float | None = None,
        expert_return: float | None = None,
    ) -> None:
        if (act_low is None) != (act_high is None):
            raise DatasetError("act_low and act_high belong together; pass both or neither")
        if n_actions is not None and n_actions < 1:
            raise DatasetError(f"n_actions must be at least 1, got {n_actions}")
        self.env_id, self.random_return, self.expert_return = env_id, random_return, expert_return
        self.n_terminated = 0
        """How many episodes reached a terminal state."""
        self._normalize, self._given = normalize, (act_low, act_high, n_actions)
        self._returns: list[float] = []
        self._lengths: list[int] = []
        self._initial_obs: list[Array] = []
        self._ended = True
        self._buffer: Any = None

    def __len__(self) -> int:
        """Return the number of transitions."""
        return len(self._buffer)

    def sample(self, batch_size: int, seed: int | None = None) -> dict[str, Array]:
        """Draw transitions; see :meth:`rlox.OfflineDatasetBuffer.sample`."""
        rows: dict[str, Array] = self._buffer.sample(batch_size, seed)
        return rows

    @abstractmethod
    def _outcomes(self) -> tuple[int | None, Any, Array]:
        """Return the first gap, rewards and ends, and an array for the returns from there on."""

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
        gap, rows, returns = self._outcomes()
        if gap is not None:
            raise DatasetError(
                "returns need episodes whose transitions follow each other, but row "
                f"{gap + 1} does not begin with the next observation of row {gap}; mark in "
                "'truncated' that an episode ends there, or order the rows"
            )
        discounted_returns(rows, gamma, reward_scale, reward_shift, out=returns)
        return DatasetWithReturns(self, returns)

    def n_episodes(self) -> int:
        """Return the number of episodes."""
        return len(self._lengths)

    def stats(self) -> dict[str, float]:
        """Return sizes, and statistics of the episodes' returns and lengths."""
        sizes = {
            "n_transitions": len(self),
            "n_episodes": self.n_episodes(),
            "obs_dim": self.first["obs"].size,
            "act_dim": self.first["actions"].size,
        }
        return sizes | episode_statistics(self.episode_returns, self.episode_lengths)

    @property
    def episode_returns(self) -> npt.NDArray[np.float64]:
        """(n_episodes,) undiscounted returns."""
        return np.array(self._returns)

    @property
    def episode_lengths(self) -> npt.NDArray[np.int64]:
        """(n_episodes,) in env steps."""
        return np.array(self._lengths)

    @property
    def initial_obs(self) -> Array:
        """(n_episodes, ...) first observations, not normalised."""
        return np.stack(self._initial_obs)

    def metadata(self) -> dict[str, Any]:
        """Return what is known beyond the transitions, as JSON-able keyword arguments."""
        values = {name: getattr(self, name) for name in METADATA}
        return {
            name: value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
            for name, value in values.items()
            if value is not None
        }

    def _normalizes(self, dtype: np.dtype[Any]) -> bool:
        """Return whether observations are normalised."""
        floats = dtype.kind == "f"
        if self._normalize and not floats:
            raise DatasetError(
                f"observations of {dtype} cannot be normalised; pass normalize=False"
            )
        return floats if self._normalize is None else self._normalize

    def _check_actions(self, actions: Array) -> None:
        """Refuse some of the actions, (B, act_dim) floats or (B,) integers, if out of bounds."""
        low, high, n_actions = self._given
        if actions.dtype.kind == "i":
            if (lowest := int(actions.min())) < 0:
                raise DatasetError(f"discrete actions are counted from 0 on, got {lowest}")
            self.n_actions = n_actions or max(self.n_actions or 0, int(actions.max()) + 1)
            check_actions(actions, spaces.Discrete(self.n_actions))
        elif low is not None and high is not None:
            self.act_low, self.act_high = require_bounds(low, high, actions.shape[1])
            check_actions(actions, spaces.Box(self.act_low, self.act_high))

    def _count(self, piece: Columns) -> None:
        """Take in the returns and lengths of the next transitions; the last episode may go on."""
        ended = piece["terminated"] | piece["truncated"]
        starts = np.flatnonzero(np.concatenate([[self._ended], ended[:-1]]))
        edges = np.concatenate([starts, [len(ended)]])
        self.n_terminated += int(piece["terminated"].sum())
        if not self._ended:
            self._returns[-1] += float(piece["rewards"][: edges[0]].sum(dtype=np.float64))
            self._lengths[-1] += int(edges[0])
        if len(starts):
            self._returns += np.add.reduceat(piece["rewards"].astype(np.float64), starts).tolist()
            self._lengths += np.diff(edges).tolist()
            self._initial_obs += list(piece["obs"][starts])
        self._ended = bool(ended[-1])


class Dataset(Recorded):
    """Recorded transitions with what is known of where they come from.

    Satisfies :class:`rlox_offline.datasets.protocol.OfflineDataset`: it samples from a
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
        data: dict[str, Any] = complete(columns)
        self.columns: Columns = data
        """The six arrays, not normalised."""
        super().__init__(
            normalize, act_low, act_high, n_actions, env_id, random_return, expert_return
        )
        self.first = {name: column[0] for name, column in data.items()}
        self._check_actions(data["actions"])
        self._count(data)
        normalize = self._normalizes(data["obs"].dtype)
        self._buffer = rlox.OfflineDatasetBuffer(**data, normalize=normalize)
        self.obs_mean, self.obs_std = self._buffer.obs_mean, self._buffer.obs_std

    def sample_trajectories(
        self, batch_size: int, seq_len: int, seed: int | None = None
    ) -> dict[str, Array]:
        """Draw pieces of episodes; see :meth:`rlox.OfflineDatasetBuffer.sample_trajectories`."""
        rows: dict[str, Array] = self._buffer.sample_trajectories(batch_size, seq_len, seed)
        return rows

    def episodes(self) -> list[slice]:
        """Return the rows of each episode."""
        stops = np.cumsum(self._lengths).tolist()
        return [slice(stop - n, stop) for stop, n in zip(stops, self._lengths, strict=True)]

    def _outcomes(self) -> tuple[int | None, Any, Array]:
        return first_gap(self.columns), self.columns, np.empty(len(self), np.float32)


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
