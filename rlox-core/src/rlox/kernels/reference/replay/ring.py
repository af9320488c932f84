"""Ring storage of transitions, read as steps, n steps and sequences, and a uniform buffer.

A buffer is a ring of slots: transition number k goes to slot k mod capacity. Random numbers come
from NumPy's ``Generator``: a seed draws the same batches here and in Rust.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class NStep:
    """Order of the envs' steps, and the number of steps in a drawn transition.

    R = Σ γ^i r_i over k steps: ``n_step``, or fewer if the episode or the stored data ends. The
    value after them has the factor γ^k, and 0 after a termination.

    Source:
        Hessel et al., "Rainbow", 2018, section "Multi-step learning".
    """

    n_envs: int
    n_step: int
    gamma: float

    def check(self, capacity: int) -> None:
        """Refuse values out of range."""
        parse_size("n_step", self.n_step)
        if not 1 <= self.n_envs <= capacity:
            raise ValueError(f"n_envs must lie in [1, {capacity}], got {self.n_envs}")
        in_range("gamma", self.gamma, 0, 1)

    def check_push(self, n: int) -> None:
        """Refuse the steps of some envs without those of the others."""
        if n % self.n_envs:
            raise ValueError(
                f"a buffer of n_envs = {self.n_envs} stores one step of every env after the other, "
                f"so transitions come in multiples of {self.n_envs}, got {n}; push the steps of "
                "all envs with one push_batch"
            )

    def gather(self, fields: dict[str, Array], slots: Array, position: int) -> dict[str, Array]:
        """Return the transitions that begin in ``slots``; ``position`` is written next."""
        batch = {name: field[slots] for name, field in fields.items()}
        if self.n_step == 1:
            return batch
        capacity = len(fields["rewards"])
        batch["discounts"] = np.zeros(len(slots), np.float32)
        for row, first in enumerate(slots):
            newer = (position - 1 - first) % capacity
            rewards = []
            for steps in range(self.n_step):
                last = (first + steps * self.n_envs) % capacity
                rewards.append(float(fields["rewards"][last]))
                if fields["terminated"][last] or fields["truncated"][last]:
                    break
                if newer < (steps + 1) * self.n_envs:
                    break
            total, weight = 0.0, 1.0
            for reward in rewards:
                total += weight * reward
                weight *= self.gamma
            for name in ("next_obs", "terminated", "truncated"):
                batch[name][row] = fields[name][last]
            batch["rewards"][row] = total
            batch["discounts"][row] = 0.0 if fields["terminated"][last] else weight
        return batch


class Ring:
    """The last ``capacity`` transitions; number k lies in slot k mod capacity."""

    def __init__(
        self,
        capacity: int,
        obs_shape: tuple[int, ...],
        act_shape: tuple[int, ...],
        obs_dtype: np.dtype[Any],
        act_dtype: np.dtype[Any],
        steps: NStep,
    ) -> None:
        steps.check(capacity)
        self.capacity, self.steps = capacity, steps
        self.fields = {
            "obs": np.zeros((capacity, *obs_shape), obs_dtype),
            "next_obs": np.zeros((capacity, *obs_shape), obs_dtype),
            "actions": np.zeros((capacity, *act_shape), act_dtype),
            "rewards": np.zeros(capacity, np.float32),
            "terminated": np.zeros(capacity, np.bool_),
            "truncated": np.zeros(capacity, np.bool_),
        }
        self.has_next_obs = np.zeros(capacity, np.bool_)
        self.len = self.position = self.written = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(field.nbytes for field in self.fields.values()) + self.has_next_obs.nbytes

    def store(self, rows: dict[str, Array]) -> list[int]:
        """Store checked rows; return their slots."""
        slots = []
        for k in range(len(rows["rewards"])):
            slot = self.position
            for name, field in self.fields.items():
                field[slot] = rows[name][k] if name in rows else 0
            self.has_next_obs[slot] = "next_obs" in rows
            self.written += 1
            self.position = (slot + 1) % self.capacity
            self.len = min(self.len + 1, self.capacity)
            slots.append(slot)
        return slots

    def truncate_newest(self) -> None:
        """Truncate the newest step of every env, unless it has ended its episode."""
        newest = (self.position - 1 - np.arange(min(self.len, self.steps.n_envs))) % self.capacity
        self.fields["truncated"][newest] |= ~self.fields["terminated"][newest]

    def check_sample(self, out: dict[str, Array] | None) -> None:
        """Refuse to draw from an empty ring, or next observations that are not known."""
        if self.len == 0:
            raise RuntimeError("the buffer is empty; push a transition before sampling")
        if out is not None and not isinstance(out, dict):
            raise TypeError(f"out must be a dict of arrays, got {type(out).__name__}")
        if out is not None and "next_obs" in out and not self.knows_next_obs():
            raise RuntimeError(UNKNOWN_NEXT_OBS)

    def knows_next_obs(self) -> bool:
        """Return whether every stored transition has its next observation."""
        return bool(self.has_next_obs[: self.len].all())

    def gather(
        self, slots: Array, more: dict[str, Array], out: dict[str, Array] | None
    ) -> dict[str, Array]:
        """Return the transitions that begin in ``slots``, and ``more``; in ``out`` if given."""
        drawn = self.steps.gather(self.fields, slots, self.position)
        batch = self.without_unknown(drawn)
        batch.update(more)
        if out is None:
            return batch
        if out.keys() != batch.keys():
            raise ValueError(f"out must have the keys {', '.join(batch)}, got {list(out)}")
        write(batch, out)
        return out

    def without_unknown(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Return a batch without next observations if one is unknown."""
        if self.knows_next_obs():
            return batch
        del batch["next_obs"]
        return PartialBatch(batch)

    def changed_rows(self, since: int) -> tuple[int, int, list[tuple[int, int]]]:
        """Return the counts of transitions written and of slots filled, and the changed slots.

        The newest step of every env counts as changed: it may have been truncated.
        """
        n = min(max(self.written - since, self.steps.n_envs), self.len)
        begin = self.position - n
        runs = [(max(begin, 0), self.position), (begin + self.capacity, self.capacity)]
        return self.written, self.len, [(a, b) for a, b in runs if a < b]

    def rows(self, start: int, stop: int) -> dict[str, Array]:
        """Return copies of the arrays' rows in a range of slots."""
        if not 0 <= start <= stop <= self.len:
            raise ValueError(f"slots must lie in [0, {self.len}], got {start} to {stop}")
        arrays = self.fields | {"has_next_obs": self.has_next_obs}
        return {name: array[start:stop].copy() for name, array in arrays.items()}

    def rest(self) -> dict[str, Array]:
        """Return the next slot to write, and the number of envs."""
        return {
            "position": np.array([self.position], np.uint64),
            "n_envs": np.array([self.steps.n_envs], np.uint64),
        }

    def set_state(self, state: dict[str, Array]) -> None:
        """Restore the results of :meth:`rows` and :meth:`rest`.

        An impossible state is refused and changes nothing.
        """
        # older checkpoints do not have the key
        n_envs = int(state["n_envs"][0]) if "n_envs" in state else self.steps.n_envs
        if n_envs != self.steps.n_envs:
            raise ValueError(f"n_envs must be {n_envs} as in the state, got {self.steps.n_envs}")
        names = ("obs", "actions", "rewards", "terminated", "truncated", "next_obs")
        rows = many_rows(self.fields, *(state[name] for name in names))
        n, position = len(rows["rewards"]), int(state["position"][0])
        if n > self.capacity:
            raise ValueError("there are more transitions than the capacity")
        if not 0 <= position < self.capacity or (n < self.capacity and position != n):
            raise ValueError("the next slot follows the last one, or lies in a full ring")
        if n < self.capacity and n % self.steps.n_envs:
            raise ValueError("there are steps of some envs without those of the others")
        if np.shape(state["has_next_obs"]) != (n,):
            raise ValueError(f"has_next_obs must have shape {(n,)}")
        self.len = self.position = 0
        self.store(rows)
        self.has_next_obs[:n] = state["has_next_obs"]
        self.position = position


class SavedRing:
    """A buffer over a ring: its content, the stream of its draws, and its state by rows."""

    def __init__(
        self,
        capacity: SupportsIndex,
        obs_shape: tuple[int, ...],
        act_dim: SupportsIndex | Sequence[SupportsIndex],
        obs_dtype: npt.DTypeLike,
        act_dtype: npt.DTypeLike,
        steps: NStep,
        seed: int | None,
    ) -> None:
        self._ring = Ring(
            parse_size("capacity", capacity),
            obs_shape,
            parse_shape("act_dim", act_dim),
            parse_dtype("obs_dtype", obs_dtype, OBS_DTYPES),
            parse_dtype("act_dtype", act_dtype, ACT_DTYPES),
            steps,
        )
        self._rng = np.random.default_rng(seed)

    @property
    def capacity(self) -> int:
        """Capacity in transitions."""
        return self._ring.capacity

    @property
    def n_envs(self) -> int:
        """Number of envs that are stored in turn."""
        return self._ring.steps.n_envs

    @property
    def nbytes(self) -> int:
        """Bytes of memory in the full buffer."""
        return self._ring.nbytes

    def __len__(self) -> int:
        """Return the number of stored transitions."""
        return self._ring.len

    def _prepare(
        self, batch_size: SupportsIndex, seed: int | None, out: dict[str, Array] | None
    ) -> tuple[int, np.random.Generator]:
        """Return the checked batch size and the stream to draw from."""
        n = parse_size("batch_size", batch_size)
        self._ring.check_sample(out)
        return n, self._rng if seed is None else np.random.default_rng(seed)

    def truncate_episodes(self) -> None:
        """Truncate the running episodes at their newest steps, as after a reset of the envs.

        The newest transitions count as truncated unless they ended their episodes.
        """
        self._ring.truncate_newest()

    def changed_rows(self, since: int) -> tuple[int, int, list[tuple[int, int]]]:
        """Return the slots that may have changed since an older call.

        Args:
            since: mark that the older call returned, at least 0; 0 stands for all slots.

        Returns:
            A mark of this moment, the number of filled slots, and ranges (start, stop) of slots.
        """
        return self._ring.changed_rows(since)

    def rows(self, start: int, stop: int) -> dict[str, Array]:
        """Return a copy of the part of :meth:`state` with one row per slot.

        Args:
            start: the first slot.
            stop: the slot after the last one, at most the number of filled slots.

        Raises:
            ValueError: the slots are not filled.
        """
        return self._ring.rows(start, stop)

    def rest(self) -> dict[str, Array]:
        """Return a copy of the part of :meth:`state` without a row per slot."""
        return self._ring.rest() | {"rng": stream_words(self._rng)}

    def state(self) -> dict[str, Array]:
        """Return a copy of the complete state.

        Returns:
            The arrays of a batch with all transitions in the order of their slots, with zeros for
            an unknown ``next_obs``; ``has_next_obs`` ``(len,)`` bool; ``position`` ``(1,)`` uint64,
            the next slot to write; ``n_envs`` ``(1,)`` uint64; ``rng`` ``(6,)`` uint64, the PCG64
            state and increment, high words first, whether half a word is left over, and that
            half.
        """
        return self.rows(0, self._ring.len) | self.rest()

    def set_state(self, state: dict[str, Array]) -> None:
        """Continue exactly from a :meth:`state`.

        Raises:
            ValueError: a part is missing, unknown, of the wrong shape, or impossible for a buffer
                with this capacity and ``n_envs``; the buffer stays unchanged.
        """
        if state.keys() | {"n_envs"} != self.state().keys():
            raise ValueError(f"state must have the keys {', '.join(self.state())}")
        rng = stream(state["rng"])
        self._ring.set_state(state)
        self._rng = rng


def follow(
    fields: dict[str, Array],
    first: Array,
    seq_len: int,
    *,
    stored: int,
    position: int,
    n_envs: int,
    cross_episodes: bool,
) -> dict[str, Array]:
    """Return the sequences that begin with the transitions of some ages, 0 for the oldest.

    Args:
        fields: the arrays of the ring.
        first: the ages.
        seq_len: number of steps T per sequence.
        stored: number of stored transitions.
        position: next slot to write.
        n_envs: number of envs that are stored in turn.
        cross_episodes: whether a sequence continues after the end of an episode.
    """
    capacity, shape = len(fields["rewards"]), (len(first), seq_len)
    batch = {
        key: np.zeros((*shape, *field.shape[1:]), field.dtype) for key, field in fields.items()
    }
    batch |= {key: np.zeros(shape, np.bool_) for key in ("is_first", "mask")}
    oldest = position if stored == capacity else 0
    ends = (fields["terminated"] | fields["truncated"])[(oldest + np.arange(stored)) % capacity]
    for row, begin in enumerate(first):
        for step in range(seq_len):
            age = begin + step * n_envs
            before = age - n_envs
            follows = before >= 0 and not ends[before]
            if age >= stored or (step > 0 and not follows and not cross_episodes):
                break
            for key, field in fields.items():
                batch[key][row, step] = field[(oldest + age) % capacity]
            batch["is_first"][row, step] = not follows
            batch["mask"][row, step] = True
    return batch


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
        super().__init__(
            capacity, obs_shape, act_dim, obs_dtype, act_dtype, NStep(n_envs, n_step, gamma), seed
        )

    @property
    def n_step(self) -> int:
        """Number of steps of its env in a drawn transition."""
        return self._ring.steps.n_step

    @property
    def gamma(self) -> float:
        """Discount of the rewards within those steps, and of the value after them."""
        return self._ring.steps.gamma

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
        self._ring.steps.check_push(1)
        self._ring.store(
            one_row(self._ring.fields, obs, action, reward, terminated, truncated, next_obs)
        )

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
        rows = many_rows(self._ring.fields, obs, actions, rewards, terminated, truncated, next_obs)
        self._ring.steps.check_push(len(rows["rewards"]))
        self._ring.store(rows)

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
        return self._ring.gather(rng.integers(self._ring.len, size=n), {}, out)

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
        n_envs = self._ring.steps.n_envs
        n_starts = self._ring.len - (length - 1) * n_envs if cross_episodes else self._ring.len
        if n_starts < 1:
            needed = (length - 1) * n_envs + 1
            raise RuntimeError(
                f"such sequences take at least {needed} stored transitions, got {self._ring.len}"
            )
        batch = follow(
            self._ring.fields,
            rng.integers(n_starts, size=n),
            length,
            stored=self._ring.len,
            position=self._ring.position,
            n_envs=n_envs,
            cross_episodes=cross_episodes,
        )
        return self._ring.without_unknown(batch)

    def draw(self, n: int, seed: int | None) -> tuple[Array, dict[str, Array]]:
        """Return n slots drawn as :meth:`sample` does, and the fields of all slots."""
        rng = self._rng if seed is None else np.random.default_rng(seed)
        return rng.integers(self._ring.len, size=n), self._ring.fields
