"""Replay buffers, uniform and prioritized.

A buffer is a ring of slots: transition number k goes to slot k mod capacity. Random numbers are
those of NumPy's ``Generator``: a seed draws the same batches here and in Rust.

Source: Schaul et al., "Prioritized Experience Replay", ICLR 2016.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

__all__ = ["PrioritizedReplayBuffer", "ReplayBuffer"]

Array = npt.NDArray[Any]

OBS_DTYPES = ("uint8", "int32", "int64", "float32", "float64")
ACT_DTYPES = ("float32", "int64")

UNKNOWN_NEXT_OBS = (
    "the buffer holds transitions that were pushed without next_obs, so there is nothing to "
    "bootstrap from; push next_obs with every transition"
)


class PartialBatch(dict[str, Any]):
    """A batch of a buffer that does not know all of its next observations, and so gives none."""

    def __missing__(self, key: str) -> Any:
        raise KeyError(UNKNOWN_NEXT_OBS if key == "next_obs" else key)


def _size(name: str, value: SupportsIndex) -> int:
    size = operator.index(value)
    if size < 1:
        raise ValueError(f"{name} must be at least 1, got {size}")
    return size


def _shape(name: str, dim: SupportsIndex | Sequence[SupportsIndex]) -> tuple[int, ...]:
    return tuple(_size(name, n) for n in (dim if isinstance(dim, Sequence) else (dim,)))


def _dtype(name: str, dtype: npt.DTypeLike, allowed: Sequence[str]) -> np.dtype[Any]:
    if np.dtype(dtype).name not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {dtype!r}")
    return np.dtype(dtype)


def _convert(name: str, values: npt.ArrayLike, shape: tuple[int, ...], like: Array) -> Array:
    """Return ``values`` in the type of ``like``; what is not finite or does not fit is refused."""
    raw = np.asarray(values)
    if raw.size and raw.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers, got dtype {raw.dtype}")
    element = like.shape[1:]
    if math.prod(element) == 1 and raw.shape == shape[: len(shape) - len(element)]:
        raw = raw.reshape(shape)
    if raw.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {raw.shape}")
    if not np.isfinite(raw).all():
        raise ValueError(f"{name} must be finite")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = raw.astype(like.dtype)
    rounds = converted.dtype.kind == "f"
    if not (np.isfinite(converted).all() and (rounds or (converted == raw).all())):
        raise ValueError(f"{name} must fit {like.dtype}")
    return converted


class ReplayBuffer:
    """The last ``capacity`` transitions, drawn from uniformly with replacement.

    Args:
        capacity: how many transitions fit, at least 1.
        obs_dim: the shape of an observation; an integer is the length of a vector.
        act_dim: the shape of an action.
        obs_dtype: uint8, int32, int64, float32 or float64.
        act_dtype: float32 or int64.
        seed: seed of the buffer's own random stream, or ``None`` for one from the operating system.

    Raises:
        ValueError: a size or type is out of range.
        TypeError: a size is no integer.

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
        seed: int | None = None,
    ) -> None:
        self._capacity = n = _size("capacity", capacity)
        obs_shape, act_shape = _shape("obs_dim", obs_dim), _shape("act_dim", act_dim)
        obs_dtype = _dtype("obs_dtype", obs_dtype, OBS_DTYPES)
        act_dtype = _dtype("act_dtype", act_dtype, ACT_DTYPES)
        self._fields = {
            "obs": np.zeros((n, *obs_shape), obs_dtype),
            "next_obs": np.zeros((n, *obs_shape), obs_dtype),
            "actions": np.zeros((n, *act_shape), act_dtype),
            "rewards": np.zeros(n, np.float32),
            "terminated": np.zeros(n, np.bool_),
            "truncated": np.zeros(n, np.bool_),
        }
        self._has_next_obs = np.zeros(n, np.bool_)
        self._len = self._position = 0
        self._rng = np.random.default_rng(seed)

    @property
    def capacity(self) -> int:
        """How many transitions fit."""
        return self._capacity

    def __len__(self) -> int:
        """Return how many transitions are stored."""
        return self._len

    def push(
        self,
        obs: npt.ArrayLike,
        action: npt.ArrayLike,
        reward: SupportsFloat,
        terminated: SupportsFloat,
        truncated: SupportsFloat,
        next_obs: npt.ArrayLike | None = None,
    ) -> None:
        """Store one transition, in the place of the oldest where the buffer is full.

        Args:
            obs: shape ``obs_dim``; real numbers of any type. A number stands for an array of one.
            action: shape ``act_dim``, likewise.
            reward: stored as float32.
            terminated: whether the task ended; any number but zero is true.
            truncated: whether the episode was cut.
            next_obs: what the step led to, never the first observation of another episode. Where it
                is not given, the buffer gives no next observations as long as it holds the
                transition: there is nothing to bootstrap from.

        Raises:
            ValueError: a shape is wrong, or a number is not finite or does not fit its type;
                nothing is stored.
            TypeError: an argument is no real number or array of such.
        """
        self._store(self._one(obs, action, reward, terminated, truncated, next_obs))

    def push_batch(
        self,
        obs: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        next_obs: npt.ArrayLike | None = None,
    ) -> None:
        """Store n transitions, the rows of arrays, in their order.

        Args:
            obs: shape ``(n, *obs_dim)``; like all, of any real type, and converted.
            actions: shape ``(n, *act_dim)``, or ``(n,)`` where an action is one number.
            rewards: shape ``(n,)``.
            terminated: shape ``(n,)``; any number but zero is true.
            truncated: shape ``(n,)``.
            next_obs: shape ``(n, *obs_dim)``, or ``None`` as in :meth:`push`.

        Raises:
            ValueError: as :meth:`push`; nothing is stored.
            TypeError: as :meth:`push`.
        """
        self._store(self._many(obs, actions, rewards, terminated, truncated, next_obs))

    def _one(
        self, obs: Any, action: Any, reward: Any, terminated: Any, truncated: Any, next_obs: Any
    ) -> dict[str, Array]:
        given = {"obs": obs, "action": action, "reward": reward}
        given |= {} if next_obs is None else {"next_obs": next_obs}
        rows = {}
        for name, value in given.items():
            key = {"action": "actions", "reward": "rewards"}.get(name, name)
            field = self._fields[key]
            rows[key] = _convert(name, value, field.shape[1:], field)[None]
        rows["terminated"] = np.array([float(terminated) != 0])
        rows["truncated"] = np.array([float(truncated) != 0])
        return rows

    def _many(
        self, obs: Any, actions: Any, rewards: Any, terminated: Any, truncated: Any, next_obs: Any
    ) -> dict[str, Array]:
        given = {"obs": obs, "actions": actions, "rewards": rewards}
        given |= {} if next_obs is None else {"next_obs": next_obs}
        n = len(np.asarray(rewards))
        rows = {}
        for name, value in given.items():
            field = self._fields[name]
            rows[name] = _convert(name, value, (n, *field.shape[1:]), field)
        for name, value in {"terminated": terminated, "truncated": truncated}.items():
            if np.shape(value) != (n,):
                raise ValueError(f"{name} must have shape {(n,)}, got {np.shape(value)}")
            rows[name] = np.asarray(value) != 0
        return rows

    def _store(self, rows: dict[str, Array]) -> list[int]:
        """Store rows that have been checked; return their slots."""
        slots = []
        for k in range(len(rows["rewards"])):
            slot = self._position
            for name, field in self._fields.items():
                field[slot] = rows[name][k] if name in rows else 0
            self._has_next_obs[slot] = "next_obs" in rows
            self._position = (slot + 1) % self._capacity
            self._len = min(self._len + 1, self._capacity)
            slots.append(slot)
        return slots

    def sample(
        self,
        batch_size: SupportsIndex,
        seed: int | None = None,
        *,
        out: dict[str, Array] | None = None,
    ) -> dict[str, Array]:
        """Draw transitions uniformly with replacement.

        Args:
            batch_size: how many, B; at least 1, and as many as you like.
            seed: makes the call reproducible: the rows are those of
                ``numpy.random.default_rng(seed).integers(len(buffer), size=B)``. ``None`` goes on
                with the buffer's own stream.
            out: arrays to write into, with the keys, shapes and types of the result.

        Returns:
            ``obs`` and ``next_obs`` ``(B, *obs_dim)``, ``actions`` ``(B, *act_dim)``, ``rewards``
            ``(B,)`` float32, ``terminated`` and ``truncated`` ``(B,)`` bool; ``out`` where it is
            given. While the buffer holds a transition without its next observation there is no
            ``next_obs``, and asking for it is a KeyError that says why.

        Raises:
            RuntimeError: the buffer is empty, or ``out`` has a ``next_obs`` that is not known.
            ValueError: ``batch_size`` is out of range, or ``out`` does not fit.
        """
        n, rng = self._prepare(batch_size, seed, out)
        return self._gather(rng.integers(self._len, size=n), {}, out)

    def _prepare(
        self, batch_size: SupportsIndex, seed: int | None, out: dict[str, Array] | None
    ) -> tuple[int, np.random.Generator]:
        n = _size("batch_size", batch_size)
        if self._len == 0:
            raise RuntimeError("the buffer is empty; push a transition before sampling")
        if out is not None and "next_obs" in out and not self._knows_next_obs():
            raise RuntimeError(UNKNOWN_NEXT_OBS)
        return n, self._rng if seed is None else np.random.default_rng(seed)

    def _knows_next_obs(self) -> bool:
        return bool(self._has_next_obs[: self._len].all())

    def _gather(
        self, slots: Array, more: dict[str, Array], out: dict[str, Array] | None
    ) -> dict[str, Array]:
        knows_next_obs = self._knows_next_obs()
        batch = {} if knows_next_obs else PartialBatch()
        for name, field in self._fields.items():
            if name != "next_obs" or knows_next_obs:
                batch[name] = field[slots]
        batch |= more
        if out is None:
            return batch
        if out.keys() != batch.keys():
            raise ValueError(f"out must have the keys {', '.join(batch)}, got {list(out)}")
        for name, array in batch.items():
            if out[name].shape != array.shape or out[name].dtype != array.dtype:
                raise ValueError(f"{name} must have shape {array.shape} and dtype {array.dtype}")
            out[name][...] = array
        return out

    def state(self) -> dict[str, Array]:
        """Return a copy of all that decides how the buffer goes on.

        Returns:
            The arrays of a batch with all transitions in the order of their slots, zeros where a
            ``next_obs`` is unknown; ``has_next_obs`` ``(len,)`` bool; ``position`` ``(1,)`` uint64,
            the slot that is written next; ``rng`` ``(6,)`` uint64, the PCG64 state and increment,
            high words first, whether half a word is left over, and that half.
        """
        stored = {name: field[: self._len].copy() for name, field in self._fields.items()}
        return stored | {
            "has_next_obs": self._has_next_obs[: self._len].copy(),
            "position": np.array([self._position], np.uint64),
            "rng": _words(self._rng),
        }

    def set_state(self, state: dict[str, Array]) -> None:
        """Go on exactly from a :meth:`state`.

        Raises:
            ValueError: a part is missing, unknown, of the wrong shape, or holds what no buffer of
                this capacity can; the buffer stays as it was.
        """
        if state.keys() != self.state().keys():
            raise ValueError(f"state must have the keys {', '.join(self.state())}")
        names = ("obs", "actions", "rewards", "terminated", "truncated", "next_obs")
        rows = self._many(*(state[name] for name in names))
        n, position = len(rows["rewards"]), int(state["position"][0])
        if n > self._capacity:
            raise ValueError("there are more transitions than the capacity")
        if not 0 <= position < self._capacity or (n < self._capacity and position != n):
            raise ValueError("the next slot follows the last one, or lies in a full ring")
        if np.shape(state["has_next_obs"]) != (n,):
            raise ValueError(f"has_next_obs must have shape {(n,)}")
        rng = _generator(state["rng"])
        self._len = self._position = 0
        self._store(rows)
        self._has_next_obs[:n] = state["has_next_obs"]
        self._position, self._rng = position, rng


def _words(rng: np.random.Generator) -> Array:
    state: Any = rng.bit_generator.state
    words = [
        state["state"][key] >> shift & 2**64 - 1 for key in ("state", "inc") for shift in (64, 0)
    ]
    spare = state["uinteger"] if state["has_uint32"] else 0
    return np.array([*words, state["has_uint32"], spare], np.uint64)


def _generator(words: Array) -> np.random.Generator:
    if np.shape(words) != (6,):
        raise ValueError(f"rng must have shape (6,), got {np.shape(words)}")
    high, low, inc_high, inc_low, has_spare, spare = (int(word) for word in words)
    if not inc_low & 1 or has_spare > 1 or spare >= 2**32:
        raise ValueError("rng is no valid state")
    bits = np.random.PCG64()
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": high << 64 | low, "inc": inc_high << 64 | inc_low},
        "has_uint32": has_spare,
        "uinteger": spare,
    }
    return np.random.Generator(bits)


MAX_PRIORITY = float(np.finfo(np.float32).max)


def _priorities(name: str, values: npt.ArrayLike, shape: tuple[int, ...]) -> Array:
    priorities = np.asarray(values, np.float64)
    if priorities.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {priorities.shape}")
    if not ((priorities > 0) & (priorities <= MAX_PRIORITY)).all():
        raise ValueError(f"{name} must be positive and at most {MAX_PRIORITY:e}, got {priorities}")
    return priorities


def _check_exponent(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must lie in [0, 1], got {value}")
    return float(value)


class PrioritizedReplayBuffer(ReplayBuffer):
    """The last ``capacity`` transitions, drawn from in proportion to priorities.

    P(i) = p_i^α / Σ p_k^α. A batch of B takes one transition from each B-th of the sum: stratified.
    The weights that correct for it are w_i = (N·P(i))^-β / max_k w_k, the maximum over all stored
    transitions, so that a transition's weight does not depend on the rest of its batch.

    Args:
        capacity: how many transitions fit, at least 1.
        obs_dim: the shape of an observation; an integer is the length of a vector.
        act_dim: the shape of an action.
        alpha: α in [0, 1]; 0 draws uniformly.
        beta: β in [0, 1]; 1 corrects in full.
        obs_dtype: uint8, int32, int64, float32 or float64.
        act_dtype: float32 or int64.
        seed: seed of the buffer's own random stream, or ``None`` for one from the operating system.

    Raises:
        ValueError: a size, type or exponent is out of range.
        TypeError: a size is no integer.

    Source:
        Schaul et al. 2016: equation 1, algorithm 1, section 3.4 and appendix B.2.1, for
        proportional priorities. The paper leaves open which weights the maximum is over; all stored
        ones is what OpenAI Baselines takes.
    """

    def __init__(
        self,
        capacity: SupportsIndex,
        obs_dim: SupportsIndex | Sequence[SupportsIndex],
        act_dim: SupportsIndex | Sequence[SupportsIndex],
        alpha: float = 0.6,
        beta: float = 0.4,
        *,
        obs_dtype: npt.DTypeLike = "float32",
        act_dtype: npt.DTypeLike = "float32",
        seed: int | None = None,
    ) -> None:
        super().__init__(
            capacity, obs_dim, act_dim, obs_dtype=obs_dtype, act_dtype=act_dtype, seed=seed
        )
        self._alpha, self._beta = _check_exponent("alpha", alpha), _check_exponent("beta", beta)
        self._scaled = np.zeros(self._capacity)  # p^α
        self._max_priority = 1.0

    @property
    def alpha(self) -> float:
        """The exponent α of the priorities."""
        return self._alpha

    @property
    def beta(self) -> float:
        """The exponent β of the weights."""
        return self._beta

    def push(
        self,
        obs: npt.ArrayLike,
        action: npt.ArrayLike,
        reward: SupportsFloat,
        terminated: SupportsFloat,
        truncated: SupportsFloat,
        next_obs: npt.ArrayLike | None = None,
        priority: SupportsFloat | None = None,
    ) -> None:
        """Store one transition, as :meth:`ReplayBuffer.push` does.

        Args:
            obs: shape ``obs_dim``.
            action: shape ``act_dim``.
            reward: stored as float32.
            terminated: whether the task ended.
            truncated: whether the episode was cut.
            next_obs: what the step led to, shape ``obs_dim``.
            priority: p > 0; ``None`` is the largest given so far, and at least 1 (algorithm 1), so
                that every transition is likely to be seen once.

        Raises:
            ValueError: as there, or ``priority`` is not positive or beyond float32.
        """
        rows = self._one(obs, action, reward, terminated, truncated, next_obs)
        given = None if priority is None else _priorities("priority", float(priority), ())[None]
        self._store_with(rows, given)

    def push_batch(
        self,
        obs: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        next_obs: npt.ArrayLike | None = None,
        priorities: npt.ArrayLike | None = None,
    ) -> None:
        """Store n transitions, as :meth:`ReplayBuffer.push_batch` does.

        Args:
            obs: shape ``(n, *obs_dim)``.
            actions: shape ``(n, *act_dim)``, or ``(n,)`` where an action is one number.
            rewards: shape ``(n,)``.
            terminated: shape ``(n,)``.
            truncated: shape ``(n,)``.
            next_obs: shape ``(n, *obs_dim)``.
            priorities: shape ``(n,)``, or ``None`` as in :meth:`push`.

        Raises:
            ValueError: as :meth:`push`; nothing is stored.
        """
        rows = self._many(obs, actions, rewards, terminated, truncated, next_obs)
        shape = rows["rewards"].shape
        given = None if priorities is None else _priorities("priorities", priorities, shape)
        self._store_with(rows, given)

    def _store_with(self, rows: dict[str, Array], given: Array | None) -> None:
        slots = self._store(rows)
        priorities = [self._max_priority] * len(slots) if given is None else given
        self._set_priorities(slots, priorities)

    def _set_priorities(self, slots: Sequence[int] | Array, priorities: Any) -> None:
        for slot, priority in zip(slots, priorities, strict=True):
            self._scaled[slot] = priority**self._alpha
            self._max_priority = max(self._max_priority, float(priority))

    def sample(
        self,
        batch_size: SupportsIndex,
        seed: int | None = None,
        *,
        out: dict[str, Array] | None = None,
    ) -> dict[str, Array]:
        """Draw transitions in proportion to their priorities.

        Args:
            batch_size: how many, B; at least 1, and as many as you like.
            seed: makes the call reproducible; ``None`` goes on with the buffer's own stream.
            out: arrays to write into, with the keys, shapes and types of the result.

        Returns:
            What :meth:`ReplayBuffer.sample` returns, ``weights`` ``(B,)`` float32 in [0, 1], and
            ``indices`` ``(B,)`` uint64 for :meth:`update_priorities`.

        Raises:
            RuntimeError: as :meth:`ReplayBuffer.sample`.
            ValueError: as there.
        """
        n, rng = self._prepare(batch_size, seed, out)
        scaled = self._scaled[: self._len]
        sums = np.cumsum(scaled)
        masses = (np.arange(n) + rng.random(n)) * (sums[-1] / n)
        # rounding may lead past the last one
        slots = np.minimum(np.searchsorted(sums, masses, side="right"), self._len - 1)
        weights = (scaled.min() / scaled[slots]) ** self._beta
        more = {"weights": weights.astype(np.float32), "indices": slots.astype(np.uint64)}
        return self._gather(slots, more, out)

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Give transitions new priorities, such as |TD error| + ε.

        Args:
            indices: those of a batch, shape ``(B,)``; integers of any type. Of several for one
                transition the last counts. A transition that has been overwritten since passes its
                new priority on to the one in its place.
            priorities: p > 0, shape ``(B,)``.

        Raises:
            ValueError: an index is out of range, or a priority is not positive or beyond float32;
                no priority has changed.
            TypeError: an index is no integer.
        """
        slots = np.asarray(indices)
        if slots.size and slots.dtype.kind not in "iu":
            raise TypeError(f"indices must be integers, got dtype {slots.dtype}")
        if slots.ndim != 1:
            raise ValueError(f"indices must have 1 dimension, got {slots.ndim}")
        if not ((slots >= 0) & (slots < self._len)).all():
            raise ValueError(f"indices must lie in [0, {self._len}), got {slots}")
        checked = _priorities("priorities", priorities, slots.shape)
        self._set_priorities(slots.astype(np.int64), checked)

    def set_beta(self, beta: float) -> None:
        """Set the exponent β of the weights.

        Raises:
            ValueError: ``beta`` lies outside [0, 1].
        """
        self._beta = _check_exponent("beta", beta)

    def state(self) -> dict[str, Array]:
        """Return a copy of all that decides how the buffer goes on.

        Returns:
            What :meth:`ReplayBuffer.state` returns, ``priorities`` ``(len,)`` float64, which are
            p^α; ``max_priority``, ``alpha`` and ``beta`` ``(1,)`` float64.
        """
        return super().state() | {
            "priorities": self._scaled[: self._len].copy(),
            "max_priority": np.array([self._max_priority]),
            "alpha": np.array([self._alpha]),
            "beta": np.array([self._beta]),
        }

    def set_state(self, state: dict[str, Array]) -> None:
        """Go on exactly from a :meth:`state` of a buffer with the same α.

        Raises:
            ValueError: as :meth:`ReplayBuffer.set_state`, or α differs.
        """
        if state.keys() != self.state().keys():
            raise ValueError(f"state must have the keys {', '.join(self.state())}")
        if state["alpha"][0] != self._alpha:
            raise ValueError(
                f"alpha must be {state['alpha'][0]} as in the state, got {self._alpha}"
            )
        scaled = _priorities("priorities", state["priorities"], state["rewards"].shape)
        largest = float(_priorities("max_priority", state["max_priority"], (1,))[0])
        beta = _check_exponent("beta", float(state["beta"][0]))
        super().set_state(state)
        self._scaled[: self._len] = scaled
        self._max_priority, self._beta = largest, beta
