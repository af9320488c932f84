"""The buffer over a recorded dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from rlox.kernels.reference.arrays import Array
from rlox.kernels.reference.arrays import size as parse_size
from rlox.kernels.reference.replay.parsing import (
    recorded_rows,
    recorded_shape,
    stream,
    stream_words,
)
from rlox.kernels.reference.replay.ring import ReplayBuffer

EPSILON = 1e-3
"""Added to the standard deviations that observations are divided by."""


class OfflineDatasetBuffer:
    """Recorded transitions, drawn uniformly, one by one or in pieces of trajectories.

    The episodes follow each other, with their steps in order; each ends with a termination or a
    truncation. The data is copied and never changes.

    Args:
        obs: N observations, ``(N, *obs_dim)`` or flat ``(N * obs_dim,)``; real numbers of any type.
        next_obs: observations after the steps, in the shape of ``obs``, also at episode ends.
        actions: ``(N, *act_dim)`` or flat ``(N * act_dim,)``.
        rewards: ``(N,)``, stored as float32.
        terminated: ``(N,)``, whether the task ended; any nonzero number is true.
        truncated: ``(N,)``, whether the episode was cut.
        normalize: return observations as (obs - ``obs_mean``) / ``obs_std``.
        obs_dim: the shape of an observation; ``None`` takes the shape of a row, or the length that
            follows from the size of a flat array.
        act_dim: the shape of an action; ``None`` as for ``obs_dim``.
        obs_dtype: uint8, int32, int64, float32 or float64; ``None`` is uint8 for uint8 and float32
            for all other types.
        act_dtype: float32 or int64; ``None`` is int64 for integers and float32 otherwise.
        seed: seed of the dataset's own random stream, or ``None`` for one from the operating
            system.

    Raises:
        ValueError: a shape is wrong, a number is not finite or does not fit its type, the last
            transition does not end an episode, or integers are to be normalised.
        TypeError: an argument does not hold real numbers.

    Source:
        Fujimoto and Gu, "A Minimalist Approach to Offline Reinforcement Learning", 2021, eq. 6,
        for the normalisation.

    Example:
        >>> ends, cuts = [False, False, True], [False] * 3
        >>> data = OfflineDatasetBuffer([0, 1, 2], [1, 2, 3], [0, 1, 0], [1, 1, 1], ends, cuts)
        >>> data.sample_trajectories(batch_size=8, seq_len=5, seed=0)["obs"].shape
        (8, 5, 1)
    """

    def __init__(
        self,
        obs: npt.ArrayLike,
        next_obs: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        normalize: bool = False,
        *,
        obs_dim: SupportsIndex | Sequence[SupportsIndex] | None = None,
        act_dim: SupportsIndex | Sequence[SupportsIndex] | None = None,
        obs_dtype: npt.DTypeLike | None = None,
        act_dtype: npt.DTypeLike | None = None,
        seed: int | None = None,
    ) -> None:
        obs, actions = np.asarray(obs), np.asarray(actions)
        n = np.size(rewards)
        obs_shape = recorded_shape("obs", obs, n, "obs_dim", obs_dim)
        act_shape = recorded_shape("actions", actions, n, "act_dim", act_dim)
        if obs_dtype is None:
            obs_dtype = "uint8" if obs.dtype == np.uint8 else "float32"
        if act_dtype is None:
            act_dtype = "int64" if actions.dtype.kind in "biu" else "float32"
        self._rows = ReplayBuffer(
            n, obs_shape, act_shape, obs_dtype=obs_dtype, act_dtype=act_dtype, seed=seed
        )
        self._rows.push_batch(
            recorded_rows(obs, (n, *obs_shape)),
            recorded_rows(actions, (n, *act_shape)),
            rewards,
            terminated,
            truncated,
            recorded_rows(np.asarray(next_obs), (n, *obs_shape)),
        )
        fields = self._rows.state()
        ends = np.flatnonzero(fields["terminated"] | fields["truncated"])
        if not len(ends) or ends[-1] != n - 1:
            raise ValueError(
                f"the last transition, {n - 1}, ends no episode; set truncated[{n - 1}] where the "
                "recording stopped within one"
            )
        self._begins, self._ends = np.concatenate([[0], ends[:-1] + 1]), ends + 1
        self._rewards = fields["rewards"].astype(np.float64)
        self.obs_mean: npt.NDArray[np.float64] | None = None
        """Mean of ``obs`` over the dataset, shape ``obs_dim``; ``None`` without ``normalize``."""
        self.obs_std: npt.NDArray[np.float64] | None = None
        """Standard deviation of ``obs`` plus 0.001; ``None`` without ``normalize``."""
        if normalize:
            self._normalize(fields)

    def _normalize(self, fields: dict[str, Array]) -> None:
        dtype = fields["obs"].dtype
        if dtype.kind != "f":
            raise ValueError(
                f"normalize needs observations of floats, got {dtype}; pass obs_dtype='float32'"
            )
        obs = fields["obs"].astype(np.float64)
        self.obs_mean, self.obs_std = obs.mean(0), obs.std(0) + EPSILON
        for key in ("obs", "next_obs"):
            normalized = (fields[key] - self.obs_mean) / self.obs_std
            fields[key] = normalized.astype(dtype)
        self._rows.set_state(fields)

    def __len__(self) -> int:
        """Return the number of transitions."""
        return len(self._rows)

    def n_episodes(self) -> int:
        """Return the number of episodes."""
        return len(self._ends)

    def stats(self) -> dict[str, float]:
        """Return the sizes of the dataset and statistics of its episodes.

        Returns:
            ``n_transitions``, ``n_episodes``, and the sizes ``obs_dim`` and ``act_dim``; for the
            undiscounted returns ``mean_return``, ``std_return`` (population), ``min_return``
            and ``max_return``; for the numbers of steps ``mean_episode_length``,
            ``std_episode_length``, ``min_episode_length`` and ``max_episode_length``.
        """
        row = self._rows.sample(1, seed=0)
        sizes = {
            "n_transitions": len(self),
            "n_episodes": self.n_episodes(),
            "obs_dim": row["obs"].size,
            "act_dim": row["actions"].size,
        }
        episodes = zip(self._begins, self._ends, strict=True)
        returns = [self._sum(begin, end) for begin, end in episodes]
        return sizes | episode_statistics(np.array(returns), self._ends - self._begins)

    def _sum(self, begin: Any, end: Any) -> float:
        """Return the sum of the rewards from ``begin`` to before ``end``, the last one first."""
        return float(np.cumsum(self._rewards[begin:end][::-1])[-1])

    def sample(
        self,
        batch_size: SupportsIndex,
        seed: int | None = None,
        *,
        out: dict[str, Array] | None = None,
    ) -> dict[str, Array]:
        """Draw transitions uniformly with replacement, as :meth:`ReplayBuffer.sample` does.

        Args:
            batch_size: number of transitions B, at least 1; may exceed the size of the dataset.
            seed: makes the call reproducible; ``None`` continues the dataset's own stream.
            out: arrays to write into, with the keys, shapes and dtypes of the result.

        Returns:
            ``obs`` and ``next_obs`` ``(B, *obs_dim)``, ``actions`` ``(B, *act_dim)``, ``rewards``
            ``(B,)`` float32, ``terminated`` and ``truncated`` ``(B,)`` bool.

        Raises:
            TypeError: ``out`` is not a dict of arrays of the result's dtypes.
            ValueError: ``batch_size`` or ``seed`` is out of range, or ``out`` does not fit.
        """
        return self._rows.sample(batch_size, seed, out=out)

    def sample_trajectories(
        self, batch_size: SupportsIndex, seq_len: SupportsIndex, seed: int | None = None
    ) -> dict[str, Array]:
        """Draw pieces of trajectories; every transition is equally likely to begin one.

        Args:
            batch_size: number of pieces B, at least 1.
            seq_len: number of steps T per piece, at least 1. A piece ends with its episode, and the
                rest is padded with zeros.
            seed: makes the call reproducible: the first transitions are those of
                ``numpy.random.default_rng(seed).integers(len(buffer), size=B)``. ``None`` continues
                the dataset's own stream.

        Returns:
            ``obs`` ``(B, T, *obs_dim)``, ``actions`` ``(B, T, *act_dim)``, ``rewards`` ``(B, T)``
            float32, ``terminated`` and ``truncated`` ``(B, T)`` bool; ``returns_to_go`` ``(B, T)``
            float32, the sum of the rewards from a step to the end of its episode, beyond the piece
            too; ``timesteps`` ``(B, T)`` int64, the number of a step in its episode, from 0;
            ``mask`` ``(B, T)`` bool, whether there is a step.

        Raises:
            ValueError: a size is out of range.
        """
        n, length = parse_size("batch_size", batch_size), parse_size("seq_len", seq_len)
        first, fields = self._rows.draw(n, seed)
        batch: dict[str, Any] = {
            key: np.zeros((n, length, *field.shape[1:]), field.dtype)
            for key, field in fields.items()
            if key != "next_obs"
        }
        batch["returns_to_go"] = np.zeros((n, length), np.float32)
        batch["timesteps"] = np.zeros((n, length), np.int64)
        batch["mask"] = np.zeros((n, length), np.bool_)
        for row, start in enumerate(first):
            episode = np.searchsorted(self._ends, start, side="right")
            stop = min(start + length, self._ends[episode])
            for key, field in fields.items():
                if key in batch:
                    batch[key][row, : stop - start] = field[start:stop]
            for step in range(stop - start):
                to_go = self._sum(start + step, self._ends[episode])
                batch["returns_to_go"][row, step] = to_go
                batch["timesteps"][row, step] = start + step - self._begins[episode]
                batch["mask"][row, step] = True
        return batch

    def state(self) -> dict[str, Array]:
        """Return the changing state: ``rng`` ``(6,)`` uint64, as in :meth:`ReplayBuffer.state`."""
        return {"rng": self._rows.state()["rng"]}

    def set_state(self, state: dict[str, Array]) -> None:
        """Continue exactly from a :meth:`state` over the same dataset.

        Raises:
            ValueError: ``rng`` is missing or is not the state of a stream.
        """
        if state.keys() != {"rng"}:
            raise ValueError("state must have the key rng")
        self._rows.set_state(self._rows.state() | {"rng": stream_words(stream(state["rng"]))})


def episode_statistics(
    returns: npt.NDArray[Any], lengths: npt.NDArray[np.int64]
) -> dict[str, float]:
    """Return mean, population deviation and extremes of episodes' returns and lengths, (E,) each.

    Names are those of :meth:`OfflineDatasetBuffer.stats`.
    """
    quantities = {"return": returns, "episode_length": lengths}
    return {
        f"{function.__name__}_{name}": function(values).item()
        for name, values in quantities.items()
        for function in (np.mean, np.std, np.min, np.max)
    }
