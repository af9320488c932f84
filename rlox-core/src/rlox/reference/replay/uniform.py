"""The uniform replay buffer.

A buffer is a ring of slots: transition number k goes to slot k mod capacity. Random numbers are
those of NumPy's ``Generator``: a seed draws the same batches here and in Rust.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

from rlox.reference.arrays import size as parse_size
from rlox.reference.replay.parsing import (
    Array,
    many_rows,
    one_row,
    parse_shape,
)
from rlox.reference.replay.ring import NStep, SavedRing, follow


class ReplayBuffer(SavedRing):
    """The last ``capacity`` transitions, drawn from uniformly with replacement.

    Args:
        capacity: how many transitions fit, at least 1.
        obs_dim: the shape of an observation; an integer is the length of a vector.
        act_dim: the shape of an action.
        obs_dtype: uint8, int32, int64, float32 or float64.
        act_dtype: float32 or int64.
        n_envs: how many envs are pushed in turn, as ``push_batch`` gets their steps.
        n_step: how many steps of its env a drawn transition spans, if there are as many.
        gamma: the discount factor of a step, for ``n_step`` > 1.
        share_frames: that observations are stacks of frames along their first axis; the Rust buffer
            stores each frame once, this one does not.
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
        """How many steps of its env a drawn transition spans."""
        return self._ring.steps.n_step

    @property
    def gamma(self) -> float:
        """The discount of the rewards within those steps, and of the value after them."""
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
        """Store one transition, in the place of the oldest if the buffer is full.

        Args:
            obs: shape ``obs_dim``; real numbers of any type. A number stands for an array of one.
            action: shape ``act_dim``; real numbers of any type. A number stands for an array of
                one.
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
        """Store n transitions, the rows of arrays, in their order.

        Args:
            obs: shape ``(n, *obs_dim)``; like all, of any real type, and converted.
            actions: shape ``(n, *act_dim)``, or ``(n,)`` if an action is one number.
            rewards: shape ``(n,)``.
            terminated: shape ``(n,)``; any number but zero is true.
            truncated: shape ``(n,)``.
            next_obs: shape ``(n, *obs_dim)``, or ``None`` as in :meth:`push`.

        Raises:
            ValueError: as :meth:`push`; nothing is stored.
            TypeError: as :meth:`push`.
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
            batch_size: how many, B; at least 1, and as many as you like.
            seed: makes the call reproducible: the rows are those of
                ``numpy.random.default_rng(seed).integers(len(buffer), size=B)``. ``None`` goes on
                with the buffer's own stream.
            out: arrays to write into, with the keys, shapes and types of the result.

        Returns:
            ``obs`` and ``next_obs`` ``(B, *obs_dim)``, ``actions`` ``(B, *act_dim)``, ``rewards``
            ``(B,)`` float32, ``terminated`` and ``truncated`` ``(B,)`` bool; ``out`` if it is
            given. While the buffer holds a transition without its next observation there is no
            ``next_obs``, and asking for it is a KeyError that says why. With ``n_step`` > 1
            ``rewards`` are Σ γ^i r_i over k steps, ``next_obs`` and the flags those of the last of
            them, and ``discounts`` ``(B,)`` float32 are γ^k, or 0 after a termination.

        Raises:
            RuntimeError: the buffer is empty, or ``out`` has a ``next_obs`` that is not known.
            TypeError: ``out`` is no dict of arrays of the result's types.
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
        """Draw sequences of steps, each of one env.

        Args:
            batch_size: how many sequences, B; at least 1.
            seq_len: how many steps of each, T; at least 1.
            seed: makes the call reproducible: the first transitions are the
                ``numpy.random.default_rng(seed).integers(n, size=B)``-th oldest, n being how many
                can be first. ``None`` goes on with the buffer's own stream.
            cross_episodes: whether a sequence goes on with the env's next episode. It is then
                whole, and does not begin with a transition that too few follow; otherwise it ends
                with its episode or with what is stored, and what is missing is zeros.

        Returns:
            The arrays of :meth:`sample` with two axes ``(B, T)`` in front, of one step per
            transition also with ``n_step`` > 1; ``is_first`` ``(B, T)`` bool, whether a step is the
            first of its episode, or the oldest of it that is stored; ``mask`` ``(B, T)`` bool,
            whether there is a step.

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
