"""The prioritized replay buffer (Schaul et al. 2016).

The paper is "Prioritized Experience Replay", ICLR 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

from rlox.kernels.reference.arrays import Array, in_range, integers, shaped, vector
from rlox.kernels.reference.replay.parsing import many_rows, one_row
from rlox.kernels.reference.replay.ring import ReplayBuffer

MAX_PRIORITY = float(np.finfo(np.float32).max)
MIN_PRIORITY = 1e-6
"""The ε of section 3.3: keeps every priority large enough to be drawn again."""


def _priorities(name: str, values: npt.ArrayLike, shape: tuple[int, ...]) -> Array:
    """Return the priorities for given numbers."""
    given = shaped(name, values, shape).astype(np.float64)
    if not (np.abs(given) <= MAX_PRIORITY).all():
        raise ValueError(f"{name} must be finite and at most {MAX_PRIORITY:e} in size, got {given}")
    return np.maximum(np.abs(given), MIN_PRIORITY)


def _saved_priorities(name: str, values: npt.ArrayLike, shape: tuple[int, ...]) -> Array:
    """Return the priorities, or powers of priorities, in a state."""
    priorities = shaped(name, values, shape).astype(np.float64)
    if not ((priorities > 0) & (priorities <= MAX_PRIORITY)).all():
        raise ValueError(
            "priorities is not a valid state: a priority is positive, and no larger than single "
            "precision has it"
        )
    return priorities


class PrioritizedReplayBuffer(ReplayBuffer):
    """The last ``capacity`` transitions, drawn in proportion to priorities.

    P(i) = p_i^α / Σ p_k^α. Sampling is stratified: a batch of B takes one transition from each B-th
    of the sum. The correcting weights are w_i = (N·P(i))^-β / max_k w_k, with the maximum over all
    stored transitions, so that a weight does not depend on the rest of the batch.

    Args:
        capacity: capacity in transitions, at least 1.
        obs_dim: the shape of an observation; an integer is the length of a vector.
        act_dim: the shape of an action.
        alpha: α in [0, 1]; 0 draws uniformly.
        beta: β in [0, 1]; 1 corrects in full.
        obs_dtype: uint8, int32, int64, float32 or float64.
        act_dtype: float32 or int64.
        n_envs: as in :class:`ReplayBuffer`, like the next three.
        n_step: a transition of several steps has one priority, in the slot of its first step.
        gamma: the discount factor per step.
        share_frames: whether observations are stacks of frames.
        seed: seed of the buffer's own random stream, or ``None`` for one from the operating system.

    Raises:
        ValueError: a size, type or exponent is out of range.
        TypeError: a size is not an integer.

    Source:
        Schaul et al. 2016: equation 1, algorithm 1, section 3.4 and appendix B.2.1, for
        proportional priorities. The paper does not say over which weights to take the maximum; as
        in OpenAI Baselines, it is taken over all stored ones.
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
        n_envs: int = 1,
        n_step: int = 1,
        gamma: float = 0.99,
        share_frames: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(
            capacity,
            obs_dim,
            act_dim,
            obs_dtype=obs_dtype,
            act_dtype=act_dtype,
            n_envs=n_envs,
            n_step=n_step,
            gamma=gamma,
            share_frames=share_frames,
            seed=seed,
        )
        self._alpha = float(in_range("alpha", alpha, 0, 1))
        self._beta = float(in_range("beta", beta, 0, 1))
        self._scaled = np.zeros(self.capacity)  # p^α
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
        """Store one transition like :meth:`ReplayBuffer.push`.

        Args:
            obs: shape ``obs_dim``.
            action: shape ``act_dim``.
            reward: stored as float32.
            terminated: whether the task ended.
            truncated: whether the episode was cut.
            next_obs: observation after the step, shape ``obs_dim``.
            priority: as in :meth:`update_priorities`; ``None`` is the largest so far, and at least
                1 (algorithm 1), so that every transition is likely to be drawn once.

        Raises:
            ValueError: as in that method, or ``priority`` is not finite or beyond float32.
        """
        self._check_push(1)
        rows = one_row(self._fields, obs, action, reward, terminated, truncated, next_obs)
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
        """Store n transitions like :meth:`ReplayBuffer.push_batch`.

        Args:
            obs: shape ``(n, *obs_dim)``.
            actions: shape ``(n, *act_dim)``, or ``(n,)`` if an action is one number.
            rewards: shape ``(n,)``.
            terminated: shape ``(n,)``.
            truncated: shape ``(n,)``.
            next_obs: shape ``(n, *obs_dim)``.
            priorities: shape ``(n,)``, or ``None`` as in :meth:`push`.

        Raises:
            ValueError: as in :meth:`push`; nothing is stored.
        """
        rows = many_rows(self._fields, obs, actions, rewards, terminated, truncated, next_obs)
        shape = rows["rewards"].shape
        self._check_push(len(rows["rewards"]))
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
            batch_size: number of transitions B, at least 1; may exceed the stored number.
            seed: makes the call reproducible; ``None`` continues the buffer's own stream.
            out: arrays to write into, with the keys, shapes and dtypes of the result.

        Returns:
            The result of :meth:`ReplayBuffer.sample`, ``weights`` ``(B,)`` float32 in [0, 1], and
            ``indices`` ``(B,)`` uint64 for :meth:`update_priorities`.

        Raises:
            RuntimeError: as in :meth:`ReplayBuffer.sample`.
            ValueError: as in the same method.
        """
        n, rng = self._prepare(batch_size, seed, out)
        scaled = self._scaled[: self._len]
        sums = np.cumsum(scaled)
        masses = (np.arange(n) + rng.random(n)) * (sums[-1] / n)
        # rounding may lead past the last transition
        slots = np.minimum(np.searchsorted(sums, masses, side="right"), self._len - 1)
        weights = (scaled.min() / scaled[slots]) ** self._beta
        more = {"weights": weights.astype(np.float32), "indices": slots.astype(np.uint64)}
        return self._gather(slots, more, out)

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Give transitions new priorities, such as their TD errors.

        Args:
            indices: from a batch, shape ``(B,)``; integers of any type. If a transition occurs
                several times, the last value counts. If it has been overwritten, the new priority
                goes to the transition in its place.
            priorities: shape ``(B,)``. Their absolute values are used, and at least 1e-6, so that
                every transition may be drawn again.

        Raises:
            ValueError: an index is out of range, or a priority is not finite or beyond float32; no
                priority is changed.
            TypeError: an index is not an integer.
        """
        slots = vector("indices", integers("indices", indices))
        if not ((slots >= 0) & (slots < self._len)).all():
            raise ValueError(f"indices must lie in [0, {self._len}), got {slots}")
        self._set_priorities(slots, _priorities("priorities", priorities, slots.shape))

    def set_beta(self, beta: float) -> None:
        """Set the exponent β of the weights.

        Raises:
            ValueError: ``beta`` lies outside [0, 1].
        """
        self._beta = float(in_range("beta", beta, 0, 1))

    def rest(self) -> dict[str, Array]:
        """Return a copy of the :meth:`state` apart from rows; always saved.

        Besides a :class:`ReplayBuffer`'s: ``priorities`` ``(len,)`` float64, which are p^α, and
        ``max_priority``, ``alpha`` and ``beta`` ``(1,)`` float64.
        """
        return super().rest() | {
            "priorities": self._scaled[: self._len].copy(),
            "max_priority": np.array([self._max_priority]),
            "alpha": np.array([self._alpha]),
            "beta": np.array([self._beta]),
        }

    def set_state(self, state: dict[str, Array]) -> None:
        """Continue exactly from a :meth:`state` of a buffer with the same α.

        Raises:
            ValueError: as in :meth:`ReplayBuffer.set_state`, or α differs.
        """
        if state.keys() | {"n_envs"} != self.state().keys():
            raise ValueError(f"state must have the keys {', '.join(self.state())}")
        if state["alpha"][0] != self._alpha:
            raise ValueError(
                f"alpha must be {state['alpha'][0]} as in the state, got {self._alpha}"
            )
        scaled = _saved_priorities("priorities", state["priorities"], state["rewards"].shape)
        largest = float(_saved_priorities("max_priority", state["max_priority"], (1,))[0])
        beta = in_range("beta", float(state["beta"][0]), 0, 1)
        super().set_state(state)
        self._scaled[: self._len] = scaled
        self._max_priority, self._beta = largest, beta
