"""Preprocessing between envs and networks: normalised observations and rewards, stacked frames.

It belongs to the model: its statistics are saved in checkpoints, change only while rollouts are
collected, and apply in the same way when the policy acts for a user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlox.errors import ConfigError
from rlox.files import require_memory_for
from rlox.protocols import VecEnvStep
from rlox.ranks import RANKS
from rlox.spaces.rows import (
    ObservationRows,
    channels_first,
    is_nested,
    leaf_spaces,
    map_leaves,
    require_finite,
)

CLIP = 10.0
"""Bound of normalised numbers."""

EPSILON = 1e-8
"""Added to variances."""


class Moments:
    """Mean and variance of everything seen so far, in float64.

    Before the first update they are 0 and 1, with the weight of 10⁻⁴ observations.

    Args:
        shape: shape of one observation.
        prior: weight of the initial 0 and 1, as a number of observations.

    Source:
        Chan et al. 1979, "Updating formulae and a pairwise algorithm for computing sample
        variances"; openai/baselines, running_mean_std.
    """

    def __init__(self, shape: tuple[int, ...] = (), *, prior: float = 1e-4) -> None:
        self.mean = np.zeros(shape)
        self.variance = np.ones(shape)
        self.count = prior

    def update(self, values: npt.NDArray[Any]) -> None:
        """Update with values (B, *shape)."""
        values = np.asarray(values, np.float64)
        # reductions called directly: np.mean and np.var take longer than all the rest
        count = len(values)
        mean = np.add.reduce(values) / count
        self._take_in(count, mean, np.add.reduce(np.square(values - mean)))

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add the observations that other moments have counted.

        Args:
            state: state of the other moments, see :meth:`state_dict`.
        """
        count = float(state["count"])
        if count:
            self._take_in(count, np.asarray(state["mean"]), np.asarray(state["variance"]) * count)

    def _take_in(
        self, count: float, mean: npt.NDArray[Any], squares_of_new: npt.NDArray[Any]
    ) -> None:
        total = self.count + count
        difference = mean - self.mean
        squares = (
            self.variance * self.count
            + squares_of_new
            + np.square(difference) * (self.count * count / total)
        )
        self.mean = self.mean + difference * count / total
        self.variance = squares / total
        self.count = total

    def state_dict(self) -> dict[str, Any]:
        """Return mean, variance and count."""
        return {"mean": self.mean, "variance": self.variance, "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore mean, variance and count."""
        shape = self.mean.shape
        self.mean = np.array(state["mean"], np.float64).reshape(shape)
        self.variance = np.array(state["variance"], np.float64).reshape(shape)
        self.count = float(state["count"])


class RewardScaler:
    """Divides rewards by the standard deviation of discounted returns, and clips them to ±10.

    The returns R_t = γ R_{t-1} + r_t begin at 0 with every episode. Their mean is not subtracted,
    because that would change the optimal policy.

    Args:
        n_envs: number of envs N.
        gamma: discount γ in [0, 1].

    Source:
        Engstrom et al. 2020, "Implementation matters in deep policy gradients", sec. 3; Huang et
        al. 2022, continuous details 8 and 9. Numbers are those of Stable-Baselines3's VecNormalize.
    """

    def __init__(self, n_envs: int, gamma: float) -> None:
        self.moments = Moments()
        self._returns = np.zeros(n_envs)
        self._gamma = gamma

    def scale(
        self,
        rewards: npt.NDArray[Any],
        ended: npt.NDArray[np.bool_],
        lost: npt.NDArray[np.bool_] | None = None,
    ) -> npt.NDArray[np.float64]:
        """Update with the rewards (N,) of a step and return them scaled.

        Args:
            rewards: (N,)
            ended: (N,) whether an episode ended with the step.
            lost: (N,) whether the env made no step; its reward is ignored. ``None``: all stepped.
        """
        self._returns = self._returns * self._gamma + rewards
        if lost is None:
            self.moments.update(self._returns)
        elif not lost.all():
            self.moments.update(self._returns[~lost])
        self._returns[ended] = 0.0
        scaled = rewards / np.sqrt(self.moments.variance + EPSILON)
        clipped: npt.NDArray[np.float64] = np.clip(scaled, -CLIP, CLIP)
        return clipped

    def forget(self) -> None:
        """Drop the returns of the running episodes, because all envs begin new ones."""
        self._returns = np.zeros_like(self._returns)

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and the returns of the running episodes."""
        return {"moments": self.moments.state_dict(), "returns": self._returns.copy()}

    def load_state_dict(self, state: Mapping[str, Any], *, keep_running: bool) -> None:
        """Restore the moments, and the returns if the envs continue where they were."""
        self.moments.load_state_dict(state["moments"])
        self.forget()
        if keep_running:
            self._returns[:] = state["returns"]


Array = npt.NDArray[Any]


class FrameStack:
    """Stacks the last k frames of one leaf, the oldest first.

    Frames of an image are joined along its channels, other frames along the last dimension; a
    ``Box`` with two dimensions gets a third one. A ``Discrete`` becomes a
    ``MultiDiscrete``.

    Args:
        space: space of one frame.
        size: number of frames k.
    """

    def __init__(self, space: gymnasium.Space[Any], size: int) -> None:
        shape = space.shape or ()
        self.size = size
        """Number of frames."""
        self._dims = 3 if len(shape) == 2 and isinstance(space, spaces.Box) else max(len(shape), 1)
        self.axis = 1 if channels_first(space) else -1
        """Axis of a batch along which frames are joined."""
        self.space = self._stacked(space)
        """Space of k frames."""
        if not hasattr(space, "channels_first"):
            self.space.guessed_frames = size  # type: ignore[attr-defined]
        self.space.channels_first = channels_first(space)  # type: ignore[attr-defined]

    def fill(self, frames: Array) -> Array:
        """Return k copies of each of B frames (B, *shape) joined."""
        return np.concatenate([self._with_axis(frames)] * self.size, self.axis)

    def push(self, stacks: Array, frames: Array) -> Array:
        """Return the stacks without their oldest frames and with new ones (B, *shape)."""
        frames = self._with_axis(frames)
        _, kept = np.split(stacks, [frames.shape[self.axis]], self.axis)
        return np.concatenate([kept, frames], self.axis)

    def _with_axis(self, frames: Array) -> Array:
        return frames if frames.ndim > self._dims else frames[..., None]

    def _stacked(self, space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
        def fill(bounds: Any) -> Array:
            filled: Array = self.fill(np.asarray(bounds)[None])[0]
            return filled

        if isinstance(space, spaces.Box):
            low, high = fill(space.low), fill(space.high)
            return spaces.Box(low, high, low.shape, space.dtype)
        if isinstance(space, spaces.MultiBinary):
            return spaces.MultiBinary(fill(np.zeros(space.shape)).shape)
        count = space.n if isinstance(space, spaces.Discrete) else space.nvec  # type: ignore[attr-defined]
        return spaces.MultiDiscrete(fill(count), start=fill(space.start))  # type: ignore[attr-defined]


Space = gymnasium.Space[Any]


class Preprocessor:
    """Normalises observations and stacks the last few of an episode.

    ``Box`` leaves of floats are normalised elementwise with the moments of all observations that
    rollouts collected, and clipped to ±10 (Huang et al. 2022, continuous details 6 and 7; the
    numbers are those of Stable-Baselines3's VecNormalize). Then frames are stacked; an episode
    begins with copies of its first observation, as in gymnasium's FrameStackObservation.

    Args:
        space: space of one env's observation.
        normalize: whether to normalise.
        frame_stack: number of frames; 1 stacks nothing.

    Raises:
        ConfigError: there is nothing to normalise.
    """

    def __init__(self, space: Space, *, normalize: bool, frame_stack: int) -> None:
        leaves = leaf_spaces(space)
        self.frame_stack = frame_stack
        """Number of frames that are joined."""
        self._rows = ObservationRows(space)
        self.moments = {
            name: Moments(leaf.shape or ())
            for name, leaf in leaves.items()
            if normalize and isinstance(leaf, spaces.Box) and leaf.dtype.kind == "f"
        }
        """Moments by leaf name; the name is empty if the space is not nested."""
        if normalize and not self.moments:
            raise ConfigError(f"normalize_observations: no leaf of {space} is a Box of floats")
        for name in self.moments:
            leaves[name] = spaces.Box(-CLIP, CLIP, leaves[name].shape, np.float32)
        self._recent: dict[str, Moments] | None = None
        self.stacks: Any = None
        """Stacks by leaf name, or the only one; ``None`` if no frames are stacked."""
        if frame_stack > 1:
            numbers = sum(int(np.prod(leaf.shape or (1,))) for leaf in leaves.values())
            # both bounds, and which of them are finite
            require_memory_for("frame_stack", frame_stack, 4 * frame_stack * numbers, "stack fewer")
            stacks = {name: FrameStack(leaf, frame_stack) for name, leaf in leaves.items()}
            leaves = {name: stack.space for name, stack in stacks.items()}
            self.stacks = stacks if is_nested(space) else stacks[""]
        self.space: Space = spaces.Dict(list(leaves.items())) if is_nested(space) else leaves[""]
        """Space of the networks' input; for a nested space a ``Dict`` by leaf name."""

    @property
    def has_frames(self) -> bool:
        """Whether the networks' input depends on earlier observations."""
        return self.stacks is not None

    def record(self) -> None:
        """Start to keep separate moments of the observations from here on, next to those of all."""
        self._recent = {n: Moments(m.mean.shape, prior=0.0) for n, m in self.moments.items()}

    def recorded(self) -> dict[str, dict[str, Any]]:
        """Return the moments of the observations since :meth:`record`, by leaf name."""
        return {name: moments.state_dict() for name, moments in (self._recent or {}).items()}

    def merge(self, recorded: Mapping[str, Mapping[str, Any]]) -> None:
        """Add the observations that another preprocessor has :meth:`recorded`."""
        for name, state in recorded.items():
            self.moments[name].merge(state)
            if self._recent is not None:
                self._recent[name].merge(state)

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Merge, at the end of the block, the observations that each rank has added within it."""
        if not RANKS or not self.moments:
            yield
            return
        before = self.state_dict()
        self.record()
        yield
        recent = self.recorded()
        self._recent = None
        self.load_state_dict(before)
        for name, moments in self.moments.items():
            mean, variance, count = recent[name].values()
            row = np.concatenate([np.ravel(mean), np.ravel(variance), [count]])
            for each in RANKS[0].gather(row, "moments of observations"):
                parts = np.split(each[:-1], 2)
                shaped = [part.reshape(moments.mean.shape) for part in parts]
                moments.merge({"mean": shaped[0], "variance": shaped[1], "count": each[-1]})

    def reset(self, obs: Any) -> Any:
        """Update with the first observations (N, *shape) of all envs; return them preprocessed."""
        self.take_in(obs)
        return self.begin(obs)

    def step(self, before: Any, step: VecEnvStep) -> VecEnvStep:
        """Update with a step's observations; return the step with preprocessed ones.

        Args:
            before: preprocessed observations before the step.
            step: the envs' step.

        Raises:
            EnvError: an observation to normalise is not finite.
        """
        self.take_in(step["obs"])
        if self.moments and step["final_obs"] is not step["obs"]:
            require_finite(step["final_obs"])
        seen = final = self.follow(before, step["final_obs"])
        ended = step["terminated"] | step["truncated"]
        if ended.any():
            first = self.begin(map_leaves(lambda leaf: leaf[ended], step["obs"]))
            seen = map_leaves(lambda leaf, new: _with_rows(leaf, ended, new), final, first)
        return {**step, "obs": seen, "final_obs": final}

    def begin(self, obs: Any) -> Any:
        """Return the preprocessed ``obs`` (B, *shape) at the beginning of episodes."""
        normalized = self._normalized(obs)
        if self.stacks is None:
            return normalized
        return map_leaves(FrameStack.fill, self.stacks, normalized)

    def follow(self, before: Any, obs: Any) -> Any:
        """Return the preprocessed ``obs`` (B, *shape) that follow ``before``, preprocessed too."""
        normalized = self._normalized(obs)
        if self.stacks is None:
            return normalized
        return map_leaves(FrameStack.push, self.stacks, before, normalized)

    def see(self, obs: Any, before: Any, episode_start: npt.ArrayLike | None) -> Any:
        """Return B observations preprocessed, without an update.

        Args:
            obs: (B, *shape)
            before: the preprocessed observations before; ``None`` if all begin episodes.
            episode_start: bool or (B,) bools, whether an episode begins with the observation;
                ``None`` if with none.
        """
        first = self.begin(obs)
        if before is None or self.stacks is None:
            return first
        seen = self.follow(before, obs)
        if episode_start is None:
            return seen
        size = len(next(iter(seen.values())) if isinstance(seen, dict) else seen)
        rows = np.broadcast_to(np.asarray(episode_start, np.bool_), (size,))
        return map_leaves(lambda leaf, new: _with_rows(leaf, rows, new[rows]), seen, first)

    def state_dict(self) -> dict[str, Any]:
        """Return the moments."""
        return {name: moments.state_dict() for name, moments in self.moments.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the moments."""
        for name, moments in self.moments.items():
            moments.load_state_dict(state[name])

    def take_in(self, obs: Any) -> None:
        """Update with observations (B, *shape).

        Raises:
            EnvError: there are moments, and an observation is not finite.
        """
        if self.moments:
            require_finite(obs)  # the moments never forget a NaN
        for name, moments in self.moments.items():
            for each in (moments, *((self._recent[name],) if self._recent else ())):
                each.update(obs[name] if isinstance(obs, dict) else obs)

    def _normalized(self, obs: Any) -> Any:
        if isinstance(obs, dict):
            return self._rows.stored({name: self._leaf(name, leaf) for name, leaf in obs.items()})
        return self._rows.stored(self._leaf("", obs))

    def _leaf(self, name: str, leaf: npt.NDArray[Any]) -> npt.NDArray[Any]:
        moments = self.moments.get(name)
        if moments is None:
            return leaf
        standardised = (leaf - moments.mean) / np.sqrt(moments.variance + EPSILON)
        clipped: npt.NDArray[Any] = np.clip(standardised, -CLIP, CLIP)
        return clipped


def make_preprocessor(
    space: Space, normalize: bool, frame_stack: int
) -> tuple[Preprocessor | None, Space]:
    """Return a :class:`Preprocessor`, if there is anything to do, and the networks' space."""
    if not normalize and frame_stack == 1:
        return None, space
    made = Preprocessor(space, normalize=normalize, frame_stack=frame_stack)
    return made, made.space


def _with_rows(
    leaf: npt.NDArray[Any], rows: npt.NDArray[np.bool_], new: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    changed: npt.NDArray[Any] = leaf.copy()
    changed[rows] = new
    return changed
