"""The hindsight replay buffer (Andrychowicz et al. 2017).

The paper is "Hindsight Experience Replay".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
import numpy.typing as npt

from rlox.kernels.reference.arrays import Array, in_range
from rlox.kernels.reference.arrays import size as parse_size
from rlox.kernels.reference.replay.parsing import convert
from rlox.kernels.reference.replay.ring import SavedRing

GoalFunction = Callable[[Array, Array, dict[str, Any]], npt.ArrayLike]
"""Maps (M, goal_dim) achieved goals, as many desired goals and an empty dict to (M,) results."""


@dataclass(frozen=True)
class Goals:
    """Positions of an achieved and a desired goal in an observation, and their length."""

    length: int
    achieved: int
    desired: int
    compute_reward: GoalFunction | None
    compute_terminated: GoalFunction | None
    distance_threshold: float | None

    @property
    def achieved_part(self) -> slice:
        """Slice of the achieved goal."""
        return slice(self.achieved, self.achieved + self.length)

    @property
    def desired_part(self) -> slice:
        """Slice of the desired goal."""
        return slice(self.desired, self.desired + self.length)

    def check(self, obs_dim: int) -> None:
        """Refuse goals that do not fit into an observation of this length."""
        last = obs_dim - self.length
        for name, place in {"achieved_goal": self.achieved, "desired_goal": self.desired}.items():
            in_range(name, place, 0, last)
        if abs(self.achieved - self.desired) < self.length:
            raise ValueError(
                f"achieved_goal and desired_goal must not overlap, got goals of {self.length} "
                f"numbers at {self.achieved} and {self.desired}"
            )
        if (self.compute_reward is None) == (self.distance_threshold is None):
            got = "neither" if self.compute_reward is None else "both"
            raise ValueError(
                "the rewards of other goals take either compute_reward or distance_threshold, "
                f"got {got}"
            )
        if self.distance_threshold is not None and not self.distance_threshold >= 0:
            raise ValueError(
                f"distance_threshold must be at least 0, got {self.distance_threshold}"
            )

    def recompute(self, batch: dict[str, Array], rows: Array) -> None:
        """Set the rewards and ends of rows that have got other goals."""
        achieved = batch["next_obs"][rows, self.achieved_part]
        desired = batch["next_obs"][rows, self.desired_part]
        shape = achieved.shape[:1]
        if self.compute_reward is not None:
            name, given = "the result of compute_reward", self.compute_reward(achieved, desired, {})
            rewards = convert(name, given, shape, batch["rewards"])
        else:
            # summed in order, which decides how the sum is rounded
            squares = (achieved.astype(np.float64) - desired.astype(np.float64)) ** 2
            distances = np.sqrt(np.cumsum(squares, axis=1)[:, -1])
            rewards = np.where(distances <= self.distance_threshold, 0.0, -1.0)
        if self.compute_terminated is not None:
            terminated = np.asarray(self.compute_terminated(achieved, desired, {}))
            if terminated.shape != shape:
                raise ValueError(
                    f"the result of compute_terminated must have shape {shape}, got "
                    f"{terminated.shape}"
                )
            batch["terminated"][rows] = terminated != 0
        batch["rewards"][rows] = rewards


STRATEGIES = ("future", "final", "episode")


class HerReplayBuffer(SavedRing):
    """The last ``capacity`` transitions of episodes with goals, drawn with goals reached later.

    An observation is a vector that contains the goal to reach and the goal reached, as in
    gymnasium-robotics. A drawn transition gets, with the chance k / (k + 1), k =
    ``n_sampled_goal``, a goal that its own episode has reached instead of the pushed one, in
    ``obs`` and in ``next_obs``; the reward then follows the new goal, and with
    ``compute_terminated`` so does ``terminated``.

    Rows of :meth:`push_batch` are steps of ``n_envs`` envs in turn, and a termination or a
    truncation separates an env's episodes. Only the stored part of an episode counts: a running
    episode ends with its newest step, and an episode that is being overwritten keeps the
    remaining steps.

    Args:
        capacity: capacity in transitions, at least 1 and less than 2**32.
        obs_dim: the length of an observation, including goals.
        act_dim: the shape of an action.
        goal_dim: the length of a goal.
        compute_reward: maps achieved goals ``(M, goal_dim)``, desired goals ``(M, goal_dim)`` and
            an empty dict to rewards ``(M,)``, as gymnasium-robotics' ``GoalEnv.compute_reward``.
        compute_terminated: maps the same arguments to whether the task has ended ``(M,)``; ``None``
            keeps the pushed value.
        distance_threshold: replaces ``compute_reward``: the reward is 0 if the Euclidean
            distance of the two goals is at most this, otherwise -1.
        n_sampled_goal: k; the chance of another goal is k / (k + 1).
        goal_selection_strategy: step whose achieved goal a transition gets: a step of its episode
            from the transition on (``"future"``), the last step (``"final"``), or any step
            (``"episode"``).
        achieved_goal: index of the first component of the achieved goal in an observation.
        desired_goal: index of the first component of the desired goal; ``None``: right after the
            achieved goal, as in ``gymnasium.wrappers.FlattenObservation``.
        obs_dtype: uint8, int32, int64, float32 or float64.
        act_dtype: float32 or int64.
        n_envs: number of envs that are pushed in turn, as ``push_batch`` gets their steps.
        seed: seed of the buffer's own random stream, or ``None`` for one from the operating system.

    Raises:
        ValueError: a size, place, type or strategy is out of range, the goals overlap, or there is
            not exactly one of ``compute_reward`` and ``distance_threshold``.
        TypeError: a size is not an integer, or a function is not callable.

    Source:
        Andrychowicz et al. 2017: algorithm 1, and section 4.5 for the strategies. Deviations:
        (1) goals are replaced at random when transitions are drawn, not k times when they are
        stored; (2) episodes that have not ended take part.

    Example:
        >>> buffer = HerReplayBuffer(100, obs_dim=3, act_dim=1, goal_dim=1, distance_threshold=0.1)
        >>> for x in range(5):
        ...     buffer.push([x, 9, 0], 1, -1, False, x == 4, [x + 1, 9, 0])
        >>> sorted(set(buffer.sample(100, seed=0)["obs"][:, 1].tolist()))
        [1.0, 2.0, 3.0, 4.0, 5.0, 9.0]
    """

    def __init__(
        self,
        capacity: SupportsIndex,
        obs_dim: SupportsIndex,
        act_dim: SupportsIndex | Sequence[SupportsIndex],
        goal_dim: SupportsIndex,
        compute_reward: GoalFunction | None = None,
        *,
        compute_terminated: GoalFunction | None = None,
        distance_threshold: float | None = None,
        n_sampled_goal: int = 4,
        goal_selection_strategy: str = "future",
        achieved_goal: int = 0,
        desired_goal: int | None = None,
        obs_dtype: npt.DTypeLike = "float32",
        act_dtype: npt.DTypeLike = "float32",
        n_envs: int = 1,
        seed: int | None = None,
    ) -> None:
        size, length = parse_size("obs_dim", obs_dim), parse_size("goal_dim", goal_dim)
        desired = achieved_goal + length if desired_goal is None else desired_goal
        self._goals = Goals(length, achieved_goal, desired, compute_reward, compute_terminated,
                            distance_threshold)  # fmt: skip
        self._goals.check(size)
        if goal_selection_strategy not in STRATEGIES:
            raise ValueError(
                f"goal_selection_strategy must be one of {', '.join(STRATEGIES)}, got "
                f"{goal_selection_strategy!r}"
            )
        self._strategy = goal_selection_strategy
        k = parse_size("n_sampled_goal", n_sampled_goal)
        self._chance = k / (k + 1)
        super().__init__(capacity, (size,), act_dim, obs_dtype, act_dtype, seed, n_envs=n_envs)

    def push(
        self,
        obs: npt.ArrayLike,
        action: npt.ArrayLike,
        reward: SupportsFloat,
        terminated: SupportsFloat,
        truncated: SupportsFloat,
        next_obs: npt.ArrayLike,
    ) -> None:
        """Store one transition like :meth:`ReplayBuffer.push`; ``next_obs`` is required."""
        self._store_one(obs, action, reward, terminated, truncated, next_obs)

    def push_batch(
        self,
        obs: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        next_obs: npt.ArrayLike,
    ) -> None:
        """Store n transitions like :meth:`ReplayBuffer.push_batch`; ``next_obs`` is required."""
        self._store_many(obs, actions, rewards, terminated, truncated, next_obs)

    def sample(
        self,
        batch_size: SupportsIndex,
        seed: int | None = None,
        *,
        out: dict[str, Array] | None = None,
    ) -> dict[str, Array]:
        """Draw transitions uniformly with replacement, and give most of them other goals.

        Args:
            batch_size: number of transitions B, at least 1; may exceed the stored number.
            seed: makes the call reproducible: with ``rng = numpy.random.default_rng(seed)`` the
                rows are ``rng.integers(len(buffer), size=B)``, those with ``rng.random(B)`` below
                the chance get another goal, and a second ``rng.random(B)`` chooses which.
                ``None`` continues the buffer's own stream.
            out: arrays to write into, with the keys, shapes and dtypes of the result.

        Returns:
            ``obs`` and ``next_obs`` ``(B, obs_dim)``, ``actions`` ``(B, *act_dim)``, ``rewards``
            ``(B,)`` float32, ``terminated`` and ``truncated`` ``(B,)`` bool; ``out`` if given.

        Raises:
            RuntimeError: the buffer is empty.
            TypeError: ``out`` is not a dict of arrays of the result's dtypes.
            ValueError: ``batch_size`` is out of range, ``out`` does not fit, or a goal function
                returned another shape, or rewards that are not finite.
        """
        n, rng = self._prepare(batch_size, seed, out)
        slots = rng.integers(self._len, size=n)
        relabelled = rng.random(n) < self._chance
        picks = rng.random(n)
        batch = self._gather(slots, {}, out)
        for row in np.flatnonzero(relabelled):
            reached = self._fields["next_obs"][self._pick(slots[row], picks[row])]
            for key in ("obs", "next_obs"):
                batch[key][row, self._goals.desired_part] = reached[self._goals.achieved_part]
        if relabelled.any():
            self._goals.recompute(batch, relabelled)
        return batch

    def _pick(self, slot: int, pick: float) -> int:
        """Return the slot of the step whose achieved goal is used."""
        n_envs, newer = self.n_envs, (self._position - 1 - slot) % self.capacity
        older = self._len - 1 - newer
        ends = self._fields["terminated"] | self._fields["truncated"]

        def at(steps: int) -> int:
            return (slot + steps * n_envs) % self.capacity

        first = last = 0
        while not ends[at(last)] and (last + 1) * n_envs <= newer:
            last += 1
        while (1 - first) * n_envs <= older and not ends[at(first - 1)]:
            first -= 1
        if self._strategy == "final":
            return at(last)
        if self._strategy == "future":
            first = 0
        return at(first + math.floor(pick * (last + 1 - first)))

    def set_state(self, state: dict[str, Array]) -> None:
        """Continue exactly from a :meth:`state`, also that of a :class:`ReplayBuffer`.

        Raises:
            ValueError: a part is missing, unknown, of the wrong shape, or impossible for a buffer
                with this capacity and ``n_envs``; the buffer stays unchanged.
        """
        if not np.all(state.get("has_next_obs", True)):
            raise ValueError("hindsight needs the next observation of every transition")
        super().set_state(state)
