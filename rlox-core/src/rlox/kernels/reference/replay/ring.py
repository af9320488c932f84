"""Ring storage of transitions, read as steps, n steps and sequences, and a uniform buffer.

A buffer is a ring of slots: transition number k goes to slot k mod capacity. Random numbers come
from NumPy's ``Generator``: a seed draws the same batches here and in Rust.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

from rlox.kernels.reference.arrays import Array, in_range, write
from rlox.kernels.reference.arrays import size as parse_size
from rlox.kernels.reference.replay.parsing import (
    ACT_DTYPES,
    OBS_DTYPES,
    UNKNOWN_NEXT_OBS,
    PartialBatch,
    many_rows,
    one_row,
    parse_dtype,
    parse_shape,
    stream,
    stream_words,
)


class SavedRing:
    """A ring of transitions, the stream of its draws, and its state by rows.

    Transition number k lies in slot k mod capacity. A drawn one spans several steps of its env:
    R = Σ γ^i r_i over k steps, ``n_step``, or fewer if the episode or the stored data ends. The
    value after them has the factor γ^k, and 0 after a termination.

    Source:
        Hessel et al., "Rainbow", 2018, section "Multi-step learning".
    """

    def __init__(
        self,
        capacity: SupportsIndex,
        obs_shape: tuple[int, ...],
        act_dim: SupportsIndex | Sequence[SupportsIndex],
        obs_dtype: npt.DTypeLike,
        act_dtype: npt.DTypeLike,
        seed: int | None,
        *,
        n_envs: int,
        n_step: int = 1,
        gamma: float = 1.0,
    ) -> None:
        self.capacity = parse_size("capacity", capacity)
        """Capacity in transitions."""
        act_shape = parse_shape("act_dim", act_dim)
        obs_type = parse_dtype("obs_dtype", obs_dtype, OBS_DTYPES)
        act_type = parse_dtype("act_dtype", act_dtype, ACT_DTYPES)
        self._n_step = parse_size("n_step", n_step)
        if not 1 <= n_envs <= self.capacity:
            raise ValueError(f"n_envs must lie in [1, {self.capacity}], got {n_envs}")
        self.n_envs = n_envs
        """Number of envs that are stored in turn."""
        self._gamma = in_range("gamma", gamma, 0, 1)
        self._fields: dict[str, Array] = {
            "obs": np.zeros((self.capacity, *obs_shape), obs_type),
            "next_obs": np.zeros((self.capacity, *obs_shape), obs_type),
            "actions": np.zeros((self.capacity, *act_shape), act_type),
            "rewards": np.zeros(self.capacity, np.float32),
            "terminated": np.zeros(self.capacity, np.bool_),
            "truncated": np.zeros(self.capacity, np.bool_),
        }
        self._has_next_obs = np.zeros(self.capacity, np.bool_)
        self._len = self._position = self._written = 0
        self._rng = np.random.default_rng(seed)

    @property
    def nbytes(self) -> int:
        """Bytes of memory in the full buffer."""
        return sum(field.nbytes for field in self._fields.values()) + self._has_next_obs.nbytes

    def __len__(self) -> int:
        """Return the number of stored transitions."""
        return self._len

    def _check_push(self, n: int) -> None:
        """Refuse the steps of some envs without those of the others."""
        if n % self.n_envs:
            raise ValueError(
                f"a buffer of n_envs = {self.n_envs} stores one step of every env after the other, "
                f"so transitions come in multiples of {self.n_envs}, got {n}; push the steps of "
                "all envs with one push_batch"
            )

    def _store_one(self, *row: Any) -> None:
        """Store a transition, given as the arguments of ``push``."""
        self._check_push(1)
        self._store(one_row(self._fields, *row))

    def _store_many(self, *columns: Any) -> None:
        """Store transitions, given as the arguments of ``push_batch``."""
        rows = many_rows(self._fields, *columns)
        self._check_push(len(rows["rewards"]))
        self._store(rows)

    def _store(self, rows: dict[str, Array]) -> list[int]:
        """Store checked rows; return their slots."""
        slots = []
        for k in range(len(rows["rewards"])):
            slot = self._position
            for name, field in self._fields.items():
                field[slot] = rows[name][k] if name in rows else 0
            self._has_next_obs[slot] = "next_obs" in rows
            self._written += 1
            self._position = (slot + 1) % self.capacity
            self._len = min(self._len + 1, self.capacity)
            slots.append(slot)
        return slots

    def _prepare(
        self, batch_size: SupportsIndex, seed: int | None, out: dict[str, Array] | None
    ) -> tuple[int, np.random.Generator]:
        """Return the checked batch size and the stream to draw from."""
        n = parse_size("batch_size", batch_size)
        if self._len == 0:
            raise RuntimeError("the buffer is empty; push a transition before sampling")
        if out is not None and not isinstance(out, dict):
            raise TypeError(f"out must be a dict of arrays, got {type(out).__name__}")
        if out is not None and "next_obs" in out and not self._knows_next_obs():
            raise RuntimeError(UNKNOWN_NEXT_OBS)
        return n, self._rng if seed is None else np.random.default_rng(seed)

    def _knows_next_obs(self) -> bool:
        """Return whether every stored transition has its next observation."""
        return bool(self._has_next_obs[: self._len].all())

    def _gather(
        self, slots: Array, more: dict[str, Array], out: dict[str, Array] | None
    ) -> dict[str, Array]:
        """Return the transitions that begin in ``slots``, and ``more``; in ``out`` if given."""
        drawn = {name: field[slots] for name, field in self._fields.items()}
        if self._n_step > 1:
            self._add_steps(drawn, slots)
        batch = self._without_unknown(drawn)
        batch.update(more)
        if out is None:
            return batch
        if out.keys() != batch.keys():
            raise ValueError(f"out must have the keys {', '.join(batch)}, got {list(out)}")
        write(batch, out)
        return out

    def _add_steps(self, batch: dict[str, Array], slots: Array) -> None:
        """Let the transitions of a batch span ``n_step`` steps, and add their ``discounts``."""
        fields = self._fields
        batch["discounts"] = np.zeros(len(slots), np.float32)
        for row, first in enumerate(slots):
            newer = (self._position - 1 - first) % self.capacity
            total, weight = 0.0, 1.0
            for steps in range(self._n_step):
                last = (first + steps * self.n_envs) % self.capacity
                total += weight * float(fields["rewards"][last])
                weight *= self._gamma
                ended = fields["terminated"][last] or fields["truncated"][last]
                if ended or newer < (steps + 1) * self.n_envs:
                    break
            for name in ("next_obs", "terminated", "truncated"):
                batch[name][row] = fields[name][last]
            batch["rewards"][row] = total
            batch["discounts"][row] = 0.0 if fields["terminated"][last] else weight

    def _without_unknown(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Return a batch without next observations if one is unknown."""
        if self._knows_next_obs():
            return batch
        del batch["next_obs"]
        return PartialBatch(batch)

    def truncate_episodes(self) -> None:
        """Truncate the running episodes at their newest steps, as after a reset of the envs.

        The newest transitions count as truncated unless they ended their episodes.
        """
        newest = (self._position - 1 - np.arange(min(self._len, self.n_envs))) % self.capacity
        self._fields["truncated"][newest] |= ~self._fields["terminated"][newest]

    def changed_rows(self, since: int) -> tuple[int, int, list[tuple[int, int]]]:
        """Return the slots that may have changed since an older call.

        The newest step of every env counts as changed: it may have been truncated.

        Args:
            since: mark that the older call returned, at least 0; 0 stands for all slots.

        Returns:
            A mark of this moment, the number of filled slots, and ranges (start, stop) of slots.
        """
        n = min(max(self._written - since, self.n_envs), self._len)
        begin = self._position - n
        runs = [(max(begin, 0), self._position), (begin + self.capacity, self.capacity)]
        return self._written, self._len, [(a, b) for a, b in runs if a < b]

    def rows(self, start: int, stop: int) -> dict[str, Array]:
        """Return a copy of the part of :meth:`state` with one row per slot.

        Args:
            start: the first slot.
            stop: the slot after the last one, at most the number of filled slots.

        Raises:
            ValueError: the slots are not filled.
        """
        if not 0 <= start <= stop <= self._len:
            raise ValueError(f"slots must lie in [0, {self._len}], got {start} to {stop}")
        arrays = self._fields | {"has_next_obs": self._has_next_obs}
        return {name: array[start:stop].copy() for name, array in arrays.items()}

    def rest(self) -> dict[str, Array]:
        """Return a copy of the part of :meth:`state` without a row per slot."""
        return {
            "position": np.array([self._position], np.uint64),
            "n_envs": np.array([self.n_envs], np.uint64),
            "rng": stream_words(self._rng),
        }

    def state(self) -> dict[str, Array]:
        """Return a copy of the complete state.

        Returns:
            The arrays of a batch with all transitions in the order of their slots, with zeros for
            an unknown ``next_obs``; ``has_next_obs`` ``(len,)`` bool; ``position`` ``(1,)`` uint64,
            the next slot to write; ``n_envs`` ``(1,)`` uint64; ``rng`` ``(6,)`` uint64, the PCG64
            state and increment, high words first, whether half a word is left over, and that
            half.
        """
        return self.rows(0, self._len) | self.rest()

    def set_state(self, state: dict[str, Array]) -> None:
        """Continue exactly from a :meth:`state`.

        Raises:
            ValueError: a part is missing, unknown, of the wrong shape, or impossible for a buffer
                with this capacity and ``n_envs``; the buffer stays unchanged.
        """
        if state.keys() | {"n_envs"} != self.state().keys():
            raise ValueError(f"state must have the keys {', '.join(self.state())}")
        rng = stream(state["rng"])
        # older checkpoints do not have the key
        n_envs = int(state["n_envs"][0]) if "n_envs" in state else self.n_envs
        if n_envs != self.n_envs:
            raise ValueError(f"n_envs must be {n_envs} as in the state, got {self.n_envs}")
        names = ("obs", "actions", "rewards", "terminated", "truncated", "next_obs")
        rows = many_rows(self._fields, *(state[name] for name in names))
        n, position = len(rows["rewards"]), int(state["position"][0])
        if n > self.capacity:
            raise ValueError("there are more transitions than the capacity")
        if not 0 <= position < self.capacity or (n < self.capacity and position != n):
            raise ValueError("the next slot follows the last one, or lies in a full ring")
        if n < self.capacity and n % self.n_envs:
            raise ValueError("there are steps of some envs without those of the others")
        if np.shape(state["has_next_obs"]) != (n,):
            raise ValueError(f"has_next_obs must have shape {(n,)}")
        self._len = self._position = 0
        self._store(rows)
        self._has_next_obs[:n] = state["has_next_obs"]
        self._position, self._rng = position, rng


class ReplayBuffer(SavedRing):
    """The last ``capacity`` transitions, drawn uniformly with replacement.

    Args:
        capacity: capacity in transitions, at least 1.
        obs_dim: the shape of an observation; an integer is the length of a vector.
        act_dim: the shape of an action.
        obs_dtype: uint8, int32, int64, float32 or float64.
        act_dtype: float32 or int64.
        n_envs: number of envs that are pushed in turn, as ``push_batch`` gets their steps.
        n_step: number of steps of its env in a drawn transition, or fewer if the buffer has fewer.
        gamma: the discount factor per step, for ``n_step`` > 1.
        share_frames: whether observations are stacks of frames along their first axis; the Rust
            buffer stores each frame once, this one does not.
        seed: seed of the buffer's own random stream, or ``None`` for one from the operating system.

    Raises:
        ValueError: a size or type is out of range.
        TypeError: a size is not an integer.

    Example:
        >>> buffer = ReplayBuffer(capacity=100, obs_dim=2, act_dim=1)
        >>> buffer.push([0.0, 1.0], 0.5, 1.0, False, False, [1.0, 2.0])
        >>> batch = buffer.sample(batch_size=32, seed=0)
        >>> batch["next_obs"].shape, batch["actions"].shape
        ((32, 2), (32, 1))
    """

    def __init__(
        self,
        capacity: SupportsIndex,
        obs_dim: SupportsIndex | Sequence[SupportsIndex],
        act_dim: SupportsIndex | Sequence[SupportsIndex],
        *,
        obs_dtype: npt.DTypeLike = "float32",
        act_dtype: npt.DTypeLike = "float32",
        n_envs: int = 1,
        n_step: int = 1,
        gamma: float = 0.99,
        share_frames: bool = False,
        seed: int | None = None,
    ) -> None:
        obs_shape = parse_shape("obs_dim", obs_dim)
        if share_frames and len(obs_shape) < 2:
            raise ValueError(
                "share_frames takes observations that are stacks of frames, frames first, got "
                f"obs_dim {list(obs_shape)}"
            )
        options: dict[str, Any] = {"n_envs": n_envs, "n_step": n_step, "gamma": gamma}
        super().__init__(capacity, obs_shape, act_dim, obs_dtype, act_dtype, seed, **options)

    @property
    def n_step(self) -> int:
        """Number of steps of its env in a drawn transition."""
        return self._n_step

    @property
    def gamma(self) -> float:
        """Discount of the rewards within those steps, and of the value after them."""
        return self._gamma

    def push(
        self,
        obs: npt.ArrayLike,
        action: npt.ArrayLike,
        reward: SupportsFloat,
        terminated: SupportsFloat,
        truncated: SupportsFloat,
        next_obs: npt.ArrayLike | None = None,
    ) -> None:
        """Store one transition, replacing the oldest if the buffer is full.

        Args:
            obs: shape ``obs_dim``; real numbers of any type. A number counts as an array of one.
            action: shape ``act_dim``; real numbers of any type. A number counts as an array of
                one.
            reward: stored as float32.
            terminated: whether the task ended; any nonzero number is true.
            truncated: whether the episode was cut.
            next_obs: observation after the step, never the first one of another episode. If it is
                left out, the buffer returns no next observations as long as it holds this
                transition, because nothing can be bootstrapped.

        Raises:
            ValueError: a shape is wrong, or a number is not finite or does not fit its type;
                nothing is stored.
            TypeError: an argument is not a real number or an array of real numbers.
        """
        self._store_one(obs, action, reward, terminated, truncated, next_obs)

    def push_batch(
        self,
        obs: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        next_obs: npt.ArrayLike | None = None,
    ) -> None:
        """Store n transitions, given as rows of arrays, in order.

        Args:
            obs: shape ``(n, *obs_dim)``; any real dtype, as in all arrays, and converted.
            actions: shape ``(n, *act_dim)``, or ``(n,)`` if an action is one number.
            rewards: shape ``(n,)``.
            terminated: shape ``(n,)``; any nonzero number is true.
            truncated: shape ``(n,)``.
            next_obs: shape ``(n, *obs_dim)``, or ``None`` as in :meth:`push`.

        Raises:
            ValueError: as in :meth:`push`; nothing is stored.
            TypeError: as in :meth:`push`.
        """
        self._store_many(obs, actions, rewards, terminated, truncated, next_obs)

    def sample(
        self,
        batch_size: SupportsIndex,
        seed: int | None = None,
        *,
        out: dict[str, Array] | None = None,
    ) -> dict[str, Array]:
        """Draw transitions uniformly with replacement.

        Args:
            batch_size: number of transitions B, at least 1; may exceed the stored number.
            seed: makes the call reproducible: the rows are those of
                ``numpy.random.default_rng(seed).integers(len(buffer), size=B)``. ``None`` continues
                the buffer's own stream.
            out: arrays to write into, with the keys, shapes and dtypes of the result.

        Returns:
            ``obs`` and ``next_obs`` ``(B, *obs_dim)``, ``actions`` ``(B, *act_dim)``, ``rewards``
            ``(B,)`` float32, ``terminated`` and ``truncated`` ``(B,)`` bool; ``out`` if given.
            While the buffer holds a transition without its next observation, ``next_obs`` is
            missing, and reading it raises a KeyError with the reason. With ``n_step`` > 1
            ``rewards`` are Σ γ^i r_i over k steps, ``next_obs`` and the flags belong to the last
            step, and ``discounts`` ``(B,)`` float32 are γ^k, or 0 after a termination.

        Raises:
            RuntimeError: the buffer is empty, or ``out`` has a ``next_obs`` that is not known.
            TypeError: ``out`` is not a dict of arrays of the result's dtypes.
            ValueError: ``batch_size`` is out of range, or ``out`` does not fit.
        """
        n, rng = self._prepare(batch_size, seed, out)
        return self._gather(rng.integers(self._len, size=n), {}, out)

    def sample_sequences(
        self,
        batch_size: SupportsIndex,
        seq_len: SupportsIndex,
        seed: int | None = None,
        *,
        cross_episodes: bool = False,
    ) -> dict[str, Array]:
        """Draw sequences of steps, each from one env.

        Args:
            batch_size: number of sequences B, at least 1.
            seq_len: number of steps T per sequence, at least 1.
            seed: makes the call reproducible: the first transitions are the
                ``numpy.random.default_rng(seed).integers(n, size=B)``-th oldest of the n that can
                be first. ``None`` continues the buffer's own stream.
            cross_episodes: whether a sequence continues in the env's next episode. It is then
                complete, and never begins too close to the newest step; otherwise it ends with its
                episode or with the stored data, and is padded with zeros.

        Returns:
            The arrays of :meth:`sample` with two leading axes ``(B, T)``, with one step per
            transition also for ``n_step`` > 1; ``is_first`` ``(B, T)`` bool, whether a step is the
            first of its episode, or the oldest stored one; ``mask`` ``(B, T)`` bool, whether there
            is a step.

        Raises:
            RuntimeError: the buffer is empty, or too few transitions are stored.
            ValueError: a size is out of range.
        """
        length = parse_size("seq_len", seq_len)
        n, rng = self._prepare(batch_size, seed, None)
        stored, n_envs, fields = self._len, self.n_envs, self._fields
        n_starts = stored - (length - 1) * n_envs if cross_episodes else stored
        if n_starts < 1:
            needed = (length - 1) * n_envs + 1
            raise RuntimeError(
                f"such sequences take at least {needed} stored transitions, got {stored}"
            )
        batch = {
            key: np.zeros((n, length, *field.shape[1:]), field.dtype)
            for key, field in fields.items()
        }
        batch |= {key: np.zeros((n, length), np.bool_) for key in ("is_first", "mask")}
        # transitions by age, the oldest first
        slots = (self._position - stored + np.arange(stored)) % self.capacity
        ends = (fields["terminated"] | fields["truncated"])[slots]
        for row, begin in enumerate(rng.integers(n_starts, size=n)):
            for step in range(length):
                age = begin + step * n_envs
                before = age - n_envs
                follows = before >= 0 and not ends[before]
                if age >= stored or (step > 0 and not follows and not cross_episodes):
                    break
                for key, field in fields.items():
                    batch[key][row, step] = field[slots[age]]
                batch["is_first"][row, step] = not follows
                batch["mask"][row, step] = True
        return self._without_unknown(batch)

    def draw(self, n: int, seed: int | None) -> tuple[Array, dict[str, Array]]:
        """Return n slots drawn as :meth:`sample` does, and the fields of all slots."""
        rng = self._rng if seed is None else np.random.default_rng(seed)
        return rng.integers(self._len, size=n), self._fields
