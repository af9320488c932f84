"""Recorded transitions in memory or in a file, checked once and then sampled from."""

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
"""What may be known beyond the transitions, and the types that it has in files."""

PIECE_ROWS = 16_384
"""Rows that are read at a time."""

MEMORY = 256 * 2**20
"""Bytes of transitions that are kept in memory."""

OUTCOME = np.dtype([("rewards", np.float32), ("terminated", np.bool_), ("truncated", np.bool_)])
"""What returns are computed from."""

LARGEST = 2**40
"""Transitions: more than any disk has."""


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


class StreamedDataset(Recorded):
    """Recorded transitions in a temporary file, from which minibatches are drawn.

    Satisfies :class:`rlox_offline.datasets.protocol.OfflineDataset`. The transitions go through
    memory once, piece by piece, into a :class:`rlox.MmapReplayBuffer`, which keeps the last of
    them in memory.
    What :meth:`sample` draws is what a :class:`Dataset` of the same columns
    draws; there are no pieces of trajectories. The file goes with the object, or with
    :meth:`close`.

    Args:
        pieces: columns of consecutive transitions, as a :class:`Dataset`
            takes them. An episode may go on from one to the next.
        folder: where the file lies; ``None`` takes the system's folder for temporary files.
        memory: bytes of transitions that are kept in memory.
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
        # pieces end with an episode, but for one without any end, which has gaps within too
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
            # as OfflineDatasetBuffer has them: rounded only where observations are
            self.obs_mean = np.array(self._moments.mean)
            self.obs_std = np.sqrt(self._moments.var) + EPSILON
        self._count(piece)

    def _begin(self, piece: Columns) -> None:
        """Open the buffer, whose rows are those of the first piece."""
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
        with tempfile.TemporaryFile(dir=self._folder) as file:  # goes with the array
            return self._gap, rows, np.asarray(np.memmap(file, np.float32, "w+", shape=rows.shape))

    def close(self) -> None:
        """Delete the file."""
        if self._buffer is not None:
            self._buffer.close()
        self._delete()


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
