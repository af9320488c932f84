"""Datasets that need not fit into memory."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rlox
from rlox.errors import DatasetError
from rlox.reference.replay.offline import EPSILON, episode_statistics

from rlox_offline.datasets.actions import ActionRange
from rlox_offline.datasets.columns import Columns
from rlox_offline.datasets.dataset import metadata_of, normalizes
from rlox_offline.datasets.episodes import EpisodeStatistics, whole_episodes
from rlox_offline.datasets.files import Pieces
from rlox_offline.datasets.returns import (
    DatasetWithReturns,
    append_outcomes,
    discounted_returns,
    first_gap,
    outcomes,
    require_succession,
)

__all__ = ["PIECE_ROWS", "StreamedDataset"]

Array = npt.NDArray[Any]

PIECE_ROWS = 16_384
"""Rows that are read at a time."""

MEMORY = 256 * 2**20
"""Bytes of transitions that are kept in memory."""

LARGEST = 2**40
"""Transitions: more than any disk has."""


class StreamedDataset:
    """Recorded transitions in a temporary file, from which minibatches are drawn.

    Satisfies :class:`rlox.offline.dataset.OfflineDataset`. The transitions go through memory once,
    piece by piece, into a :class:`rlox.MmapReplayBuffer`, which keeps the last of them in memory.
    What :meth:`sample` draws is what a :class:`~rlox_offline.datasets.Dataset` of the same columns
    draws; pieces of trajectories there are none. The file goes with the object, or with
    :meth:`close`.

    Args:
        pieces: columns of consecutive transitions, as a :class:`~rlox_offline.datasets.Dataset`
            takes them. An episode may go on from one to the next.
        folder: where the file lies; ``None`` takes the system's folder for temporary files.
        memory: bytes of transitions that are kept in memory.
        normalize: whether samples hold (obs - mean) / (std + 0.001) of all observations;
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
        OSError: the disk is full.
    """

    def __init__(
        self,
        pieces: Pieces,
        *,
        folder: str | Path | None = None,
        memory: int = MEMORY,
        normalize: bool | None = None,
        act_low: npt.ArrayLike | None = None,
        act_high: npt.ArrayLike | None = None,
        n_actions: int | None = None,
        env_id: str | None = None,
        random_return: float | None = None,
        expert_return: float | None = None,
    ) -> None:
        self.env_id = env_id
        self.random_return = random_return
        self.expert_return = expert_return
        self._actions = ActionRange(act_low, act_high, n_actions)
        self._normalize = normalize
        if memory < 1:
            raise DatasetError(f"memory must be a positive number of bytes, got {memory}")
        self._folder = Path(tempfile.mkdtemp(prefix="rlox-dataset-", dir=folder))
        self._delete = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._memory = memory
        self._episodes = EpisodeStatistics()
        self._gap: int | None = None
        self._moments: rlox.RunningMeanStd | None = None
        self._buffer: Any = None
        self.obs_mean: Array | None = None
        """(obs_dim,) what samples' observations have subtracted; ``None`` without ``normalize``."""
        self.obs_std: Array | None = None
        """(obs_dim,) what they are then divided by, or ``None``."""
        try:
            for piece in whole_episodes(pieces):
                self._add(piece)
            self._finish()
        except BaseException:
            self.close()
            raise

    def _add(self, piece: Columns) -> None:
        if self._buffer is None:
            self._begin(piece)
        self._actions.add(piece["actions"])
        # pieces end with an episode, but for one without any end, which has gaps within too
        if self._gap is None and (gap := first_gap(piece)) is not None:
            self._gap = len(self._buffer) + gap
        append_outcomes(self._folder / "outcomes", piece)
        self._buffer.push_batch(
            piece["obs"],
            piece["actions"],
            piece["rewards"],
            piece["terminated"],
            piece["truncated"],
            piece["next_obs"],
        )
        if self._moments is not None:
            self._moments.update(piece["obs"])
        self._episodes.add(piece)

    def _begin(self, piece: Columns) -> None:
        """Open the buffer, whose rows are those of the first piece."""
        self.first = {name: column[0] for name, column in piece.items()}
        """The first transition, not normalised."""
        obs, actions = piece["obs"], piece["actions"]
        row_bytes = 2 * obs[0].nbytes + actions[:1].nbytes + 8
        if normalizes(self._normalize, obs.dtype):
            self._moments = rlox.RunningMeanStd(obs.shape[1:])
        self._buffer = rlox.MmapReplayBuffer(
            max(self._memory // row_bytes, 1),
            LARGEST,
            obs.shape[1:],
            actions.shape[1:] or 1,
            self._folder / "transitions",
            obs_dtype=obs.dtype,
            act_dtype=actions.dtype,
            seed=0,
        )

    def _finish(self) -> None:
        """Look at all that was added."""
        if self._buffer is None:
            raise DatasetError("the dataset holds no transitions whose next one is known")
        if self._moments is not None:
            # as OfflineDatasetBuffer has them: rounded only where observations are
            self.obs_mean = np.array(self._moments.mean)
            self.obs_std = np.sqrt(self._moments.var) + EPSILON

    def __len__(self) -> int:
        """Return the number of transitions."""
        return len(self._buffer)

    def sample(self, batch_size: int, seed: int | None = None) -> dict[str, Array]:
        """Draw transitions; see :meth:`rlox.OfflineDatasetBuffer.sample`."""
        rows: dict[str, Array] = self._buffer.sample(batch_size, seed)
        if self.obs_mean is not None and self.obs_std is not None:
            for name in ("obs", "next_obs"):
                normalized = (rows[name] - self.obs_mean) / self.obs_std
                rows[name] = normalized.astype(np.float32)
        return rows

    def with_returns(
        self, gamma: float, reward_scale: float = 1.0, reward_shift: float = 0.0
    ) -> DatasetWithReturns:
        """Return a view whose samples also hold discounted returns, which lie in a file.

        See :meth:`rlox_offline.datasets.Dataset.with_returns`.
        """
        require_succession(self._gap)
        rows = outcomes(self._folder / "outcomes")
        with tempfile.TemporaryFile(dir=self._folder) as file:  # goes with the array
            returns = np.asarray(np.memmap(file, np.float32, "w+", shape=rows.shape))
        discounted_returns(rows, gamma, reward_scale, reward_shift, out=returns)
        return DatasetWithReturns(self, returns)

    @property
    def n_actions(self) -> int | None:
        """Number of discrete actions."""
        return self._actions.n_actions

    @property
    def act_low(self) -> Array | None:
        """(act_dim,) lower bounds of continuous actions, or ``None``."""
        return self._actions.low

    @property
    def act_high(self) -> Array | None:
        """(act_dim,) upper bounds, or ``None``."""
        return self._actions.high

    def n_episodes(self) -> int:
        """Return the number of episodes."""
        return len(self._episodes.lengths)

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
    def n_terminated(self) -> int:
        """How many episodes reached a terminal state."""
        return self._episodes.terminated

    @property
    def episode_returns(self) -> npt.NDArray[np.float64]:
        """(n_episodes,) undiscounted returns."""
        return np.array(self._episodes.returns)

    @property
    def episode_lengths(self) -> npt.NDArray[np.int64]:
        """(n_episodes,) in env steps."""
        return np.array(self._episodes.lengths)

    @property
    def initial_obs(self) -> Array:
        """(n_episodes, ...) first observations, not normalised."""
        return np.stack(self._episodes.initial_obs)

    def metadata(self) -> dict[str, Any]:
        """Return what is known beyond the transitions, as JSON-able keyword arguments."""
        return metadata_of(self)

    def close(self) -> None:
        """Delete the file."""
        if self._buffer is not None:
            self._buffer.close()
        self._delete()
