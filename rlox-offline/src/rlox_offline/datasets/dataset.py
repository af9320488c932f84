"""Recorded transitions in memory or in a file, checked once and then sampled."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rlox
from gymnasium import spaces
from rlox.errors import DatasetError
from rlox.files import open_regular
from rlox.kernels.reference.replay.offline import EPSILON, episode_statistics

from rlox_offline.datasets.columns import (
    Array,
    Columns,
    Pieces,
    complete,
    discounted_returns,
    first_gap,
    whole_episodes,
)
from rlox_offline.datasets.protocol import OfflineDataset, check_actions, require_bounds

METADATA: dict[str, tuple[type, ...]] = {
    "act_low": (int, float, list),
    "act_high": (int, float, list),
    "n_actions": (int,),
    "env_id": (str,),
    "random_return": (int, float),
    "expert_return": (int, float),
}
"""Metadata besides the transitions, and its types in files."""

PIECE_ROWS = 16_384
"""Rows read at a time."""

MEMORY = 256 * 2**20
"""Bytes of transitions kept in memory."""

OUTCOME = np.dtype([("rewards", np.float32), ("terminated", np.bool_), ("truncated", np.bool_)])
"""Columns for the computation of returns."""

LARGEST = 2**40
"""A number of transitions beyond any disk's capacity."""


class DatasetWithReturns:
    """A dataset whose samples include the returns from each transition on.

    Args:
        dataset: must draw the same rows for a seed as :class:`rlox.OfflineDatasetBuffer`.
        returns_to_go: (N,) for all its transitions.
    """

    def __init__(self, dataset: OfflineDataset, returns_to_go: Array) -> None:
        self._dataset = dataset
        self.returns_to_go = returns_to_go

    def __len__(self) -> int:
        """Return the number of transitions."""
        return len(self._dataset)

    def sample(self, batch_size: int, seed: int) -> dict[str, Array]:
        """Draw the dataset's sample for ``seed``, with ``returns_to_go`` (B,)."""
        chosen = np.random.default_rng(seed).integers(len(self), size=batch_size)
        rows = self._dataset.sample(batch_size, seed)
        return {**rows, "returns_to_go": self.returns_to_go[chosen]}


class Recorded(ABC):
    """Metadata and statistics of recorded transitions, in one piece or several.

    The arguments are those of :class:`Dataset`.
    """

    first: Columns
    """The first transition, not normalised."""
    obs_mean: Array | None = None
    """(obs_dim,) mean subtracted from sampled observations; ``None`` without ``normalize``."""
    obs_std: Array | None = None
    """(obs_dim,) divisor of sampled observations, or ``None``."""
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
        """Number of episodes that reached a terminal state."""
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
        return self._buffer.sample(batch_size, seed)  # type: ignore[no-any-return]

    @abstractmethod
    def _outcomes(self) -> tuple[int | None, Any, Array]:
        """Return the first gap, the rewards and ends, and an array for the returns to go."""

    def with_returns(
        self, gamma: float, reward_scale: float = 1.0, reward_shift: float = 0.0
    ) -> DatasetWithReturns:
        """Return a view whose samples include discounted returns; each call computes them again.

        Args:
            gamma: discount γ.
            reward_scale: factor of the rewards.
            reward_shift: added after scaling.

        Raises:
            DatasetError: the transitions of an episode are not consecutive, or an episode is cut
                and γ is 1.
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
        """Return the known metadata as JSON-able keyword arguments."""
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
        """Refuse actions, (B, act_dim) floats or (B,) integers, that are out of bounds."""
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
        """Add the returns and lengths of the next transitions; the last episode may be open."""
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
    """Recorded transitions with metadata about their origin.

    Satisfies :class:`rlox_offline.datasets.protocol.OfflineDataset`: it samples from a
    :class:`rlox.OfflineDatasetBuffer` over a copy of the arrays.

    Args:
        columns: arrays of N rows by name: ``obs`` (N, ...), ``actions`` (N, act_dim), or (N,) of
            integers, ``rewards`` (N,), ``terminated`` and ``truncated`` (N,), one of which may be
            left out, and ``next_obs`` (N, ...). D4RL's and Minari's names work too. Episodes are
            consecutive; an end of the recording within an episode cuts it. Without ``next_obs``,
            the next row in the episode gives the next observation, and the last transition of a cut
            episode, which has no next row, is dropped.
        normalize: whether samples hold (obs - mean) / (std + 0.001), with the dataset's mean and
            std; ``None`` normalises floats.
        act_low: lower bounds of continuous actions, broadcast to (act_dim,).
        act_high: upper bounds of that shape; both or neither.
        n_actions: number of discrete actions; ``None`` takes the largest recorded action plus 1.
        env_id: gymnasium id of the recorded env.
        random_return: mean return of a random policy, for normalised scores.
        expert_return: mean return of an expert, for normalised scores.

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
        return self._buffer.sample_trajectories(batch_size, seq_len, seed)  # type: ignore[no-any-return]

    def episodes(self) -> list[slice]:
        """Return the rows of each episode."""
        stops = np.cumsum(self._lengths).tolist()
        return [slice(stop - n, stop) for stop, n in zip(stops, self._lengths, strict=True)]

    def _outcomes(self) -> tuple[int | None, Any, Array]:
        return first_gap(self.columns), self.columns, np.empty(len(self), np.float32)


class StreamedDataset(Recorded):
    """Recorded transitions in a temporary file that minibatches are drawn from.

    Satisfies :class:`rlox_offline.datasets.protocol.OfflineDataset`. The transitions pass through
    memory once, piece by piece, into a :class:`rlox.MmapReplayBuffer`, which keeps the last ones in
    memory. For a seed, :meth:`sample` draws the same rows as a :class:`Dataset` of the same
    columns. Pieces of trajectories cannot be drawn. The file is deleted with the object, or by
    :meth:`close`.

    Args:
        pieces: columns of consecutive transitions, in the format of :class:`Dataset`. An episode
            may continue in the next piece.
        folder: folder of the file; ``None`` takes the system's folder for temporary files.
        memory: bytes of transitions kept in memory.
        known: further arguments of :class:`Dataset`.

    Raises:
        DatasetError: a column is missing, a shape is wrong, a value is not finite, an action is out
            of bounds, or integers are to be normalised.
        OSError: the disk is full.
    """

    def __init__(
        self,
        pieces: Pieces,
        *,
        folder: str | Path | None = None,
        memory: int = MEMORY,
        **known: Any,
    ) -> None:
        super().__init__(**known)
        if memory < 1:
            raise DatasetError(f"memory must be a positive number of bytes, got {memory}")
        self._folder = Path(tempfile.mkdtemp(prefix="rlox-dataset-", dir=folder))
        self._delete = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._memory = memory
        self._gap: int | None = None
        self._moments: Any = None
        try:
            for piece in whole_episodes(pieces):
                self._add(piece)
            if not self._lengths:
                raise DatasetError("the dataset holds no transitions whose next one is known")
        except BaseException:
            self.close()
            raise

    def _add(self, piece: Columns) -> None:
        if self._buffer is None:
            self._begin(piece)
        self._check_actions(piece["actions"])
        # pieces end with an episode, except in recordings without ends, which have gaps inside too
        if self._gap is None and (gap := first_gap(piece)) is not None:
            self._gap = len(self._buffer) + gap
        outcomes = np.empty(len(piece["rewards"]), OUTCOME)
        for name in OUTCOME.names or ():
            outcomes[name] = piece[name]
        with open_regular(self._folder / "outcomes", "ab") as file:
            outcomes.tofile(file)
        self._buffer.push_batch(**piece)
        if self._moments is not None:
            self._moments.update(piece["obs"])
            # as in OfflineDatasetBuffer: only the normalised observations are rounded
            self.obs_mean = np.array(self._moments.mean)
            self.obs_std = np.sqrt(self._moments.var) + EPSILON
        self._count(piece)

    def _begin(self, piece: Columns) -> None:
        """Open the buffer, with the row format of the first piece."""
        self.first = {name: column[0] for name, column in piece.items()}
        obs, actions = piece["obs"], piece["actions"]
        row_bytes = 2 * obs[0].nbytes + actions[:1].nbytes + 8
        if self._normalizes(obs.dtype):
            self._moments = rlox.RunningMeanStd(obs.shape[1:])
        self._buffer = rlox.MmapReplayBuffer(
            max(self._memory // row_bytes, 1),
            LARGEST,
            obs.shape[1:],
            actions.shape[1:] or 1,
            self._folder / "transitions",
            obs_dtype=obs.dtype, act_dtype=actions.dtype, seed=0,
        )  # fmt: skip

    def sample(self, batch_size: int, seed: int | None = None) -> dict[str, Array]:
        """Draw transitions; see :meth:`rlox.OfflineDatasetBuffer.sample`."""
        rows = super().sample(batch_size, seed)
        if self.obs_mean is not None and self.obs_std is not None:
            for name in ("obs", "next_obs"):
                normalized = (rows[name] - self.obs_mean) / self.obs_std
                rows[name] = normalized.astype(np.float32)
        return rows

    def _outcomes(self) -> tuple[int | None, Any, Array]:
        rows = np.memmap(self._folder / "outcomes", OUTCOME, "r")
        with tempfile.TemporaryFile(dir=self._folder) as file:  # freed with the array
            return self._gap, rows, np.asarray(np.memmap(file, np.float32, "w+", shape=rows.shape))

    def close(self) -> None:
        """Delete the file."""
        if self._buffer is not None:
            self._buffer.close()
        self._delete()


def require_metadata(values: object) -> dict[str, Any]:
    """Return a file's metadata after checking it against :data:`METADATA`.

    Raises:
        DatasetError: a name or a type does not fit.
    """
    if not isinstance(values, dict):
        raise DatasetError(f"the metadata must be a mapping, got {type(values).__name__}")
    for name, value in values.items():
        if not isinstance(value, METADATA.get(name, ())):
            raise DatasetError(f"the metadata has an unexpected {name} = {value!r}")
    return values
