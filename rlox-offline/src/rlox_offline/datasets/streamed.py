"""Datasets that need not fit into memory."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import rlox
from rlox.errors import DatasetError
from rlox.files import open_regular
from rlox.kernels.reference.replay.offline import EPSILON

from rlox_offline.datasets.columns import Array, Columns, Pieces
from rlox_offline.datasets.dataset import Recorded
from rlox_offline.datasets.episodes import first_gap, whole_episodes

PIECE_ROWS = 16_384
"""Rows that are read at a time."""

MEMORY = 256 * 2**20
"""Bytes of transitions that are kept in memory."""

OUTCOME = np.dtype([("rewards", np.float32), ("terminated", np.bool_), ("truncated", np.bool_)])
"""What returns are computed from."""

LARGEST = 2**40
"""Transitions: more than any disk has."""


class StreamedDataset(Recorded):
    """Recorded transitions in a temporary file, from which minibatches are drawn.

    Satisfies :class:`rlox_offline.datasets.protocol.OfflineDataset`. The transitions go through
    memory once, piece by piece, into a :class:`rlox.MmapReplayBuffer`, which keeps the last of
    them in memory.
    What :meth:`sample` draws is what a :class:`~rlox_offline.datasets.Dataset` of the same columns
    draws; there are no pieces of trajectories. The file goes with the object, or with
    :meth:`close`.

    Args:
        pieces: columns of consecutive transitions, as a :class:`~rlox_offline.datasets.Dataset`
            takes them. An episode may go on from one to the next.
        folder: where the file lies; ``None`` takes the system's folder for temporary files.
        memory: bytes of transitions that are kept in memory.
        known: further arguments of :class:`~rlox_offline.datasets.Dataset`.

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
