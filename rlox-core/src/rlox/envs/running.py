"""Running vector envs with episode statistics."""

from __future__ import annotations

import logging
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box

from rlox.config.composition import selection
from rlox.envs.gymnasium import (
    STEP_KEYS,
    require_observations,
    require_team_step,
    require_vec_step,
)
from rlox.envs.make import fixed_env_count, make_vec_env
from rlox.errors import CheckpointError, EnvError
from rlox.protocols import (
    AgentGroup,
    MaskingVecEnv,
    MultiAgentObs,
    MultiAgentStep,
    MultiAgentVecEnv,
    StatefulVecEnv,
    VecEnv,
    VecEnvStep,
)
from rlox.seeding import ResetSeeds
from rlox.spaces.rows import (
    ObservationRows,
    form_of,
    leaf_spaces,
    map_nested,
    require_finite,
    require_rewards,
)

_LOG = logging.getLogger("rlox")

MAX_RESTARTS = 3
"""Number of restarts of each env that runs in its own process."""


ENDLESS = 100_000
"""Env steps without the end of any episode after which a warning is due."""


class Running(ABC):
    """N running envs of one agent or of several each, and the statistics of their episodes.

    Args:
        env: steps N envs together.
        seed: fixes the envs' random streams.
        statistics: counts the episodes, an :class:`EpisodeStatistics` or with its methods.
        leaves: leaf names of observations and actions, see :func:`leaves_of`.
    """

    def __init__(self, env: Any, seed: int, statistics: Any, leaves: Any) -> None:
        self.env, self.n_envs = env, env.n_envs
        self.statistics = statistics
        self._seeds, self._leaves = ResetSeeds(seed, env.n_envs), leaves
        # kind of env that can restore the state, where only one can
        self._kind: str = getattr(env, "state_kind", "")
        self._obs: Any = None

    @abstractmethod
    def _reset(self, seeds: list[int]) -> Any:
        """Reset all envs, and return what they show, checked."""

    @property
    def started(self) -> bool:
        """Whether the envs have current observations; if not, reading :attr:`obs` resets them."""
        return self._obs is not None

    @property
    def obs(self) -> Any:
        """Observations to act on: as in ``VecEnvStep``, or all that teams show.

        The first access resets the envs, and so does the next one after a step that failed.
        """
        if self._obs is None:
            obs = self._reset(self._seeds.next())
            self._seeds.resets += 1
            self.statistics.forget(slice(None))
            self._obs = obs
        return self._obs

    @obs.setter
    def obs(self, obs: Any) -> None:
        self._obs = obs

    def state_dict(self) -> dict[str, Any]:
        """Return the episode statistics and, if the env exposes it, the env's state."""
        env_state = None
        if self.started and isinstance(self.env, StatefulVecEnv):
            env_state = _copied(self.env.state()) or None
        return {
            "started": self._seeds.begun,
            "statistics": self.statistics.state_dict(),
            "env": env_state,
            "env_kind": self._kind,
            "leaves": self._leaves,
            "obs": _copied(self._obs) if env_state else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore the state; without the state of N envs, the next access starts new episodes.

        Returns:
            Whether the envs continue exactly where they were.

        Raises:
            CheckpointError: leaves of the observations or actions have another order, or the
                envs' state is another env's.
        """
        require_same_leaves(state.get("leaves"), self._leaves)
        as_many = self.statistics.fits(state["statistics"])
        fits = as_many and state.get("env_kind", "") == self._kind
        exact = state["env"] is not None and fits and isinstance(self.env, StatefulVecEnv)
        if exact:
            if not np.all(state["env"].get("started", True)):
                raise CheckpointError("the envs' state is from before their first reset")
            try:
                self.env.set_state(dict(state["env"]))
            except (KeyError, ValueError) as error:
                raise CheckpointError(
                    f"its envs' state does not fit a {type(self.env).__name__} ({error}); pass the "
                    "env_backend and env_kwargs that it was trained with"
                ) from error
            self._obs = _copied(state["obs"])
            self._seeds.resets += 1
        self.statistics.load_state_dict(state["statistics"], keep_running=exact)
        if state["started"] and not exact:
            _LOG.info("the checkpoint has no state that fits these envs: new episodes begin")
            self._seeds.go_on_after(self.statistics.finished)
        return exact


def _copied(shown: Any) -> Any:
    """Return a nested structure with copies of its arrays, and tensors as arrays."""

    def copied(one: Any) -> Any:
        return None if one is None else np.array(one.cpu().numpy() if hasattr(one, "cpu") else one)

    return map_nested(copied, shown)


class RunningEnvs(Running):
    """N envs, their current observations, and the statistics of their episodes.

    Args:
        env: steps N envs together.
        seed: fixes the envs' random streams.
        owned: whether :meth:`close` closes ``env``.
    """

    def __init__(self, env: VecEnv, seed: int = 0, *, owned: bool = False) -> None:
        super().__init__(env, seed, EpisodeStatistics(env.n_envs), leaves_of(env))
        self._owned = owned
        self._steps = CheckedSteps(env)

    @classmethod
    def make(
        cls,
        env_id: Any,
        n_envs: int | None = None,
        seed: int = 0,
        *,
        max_restarts: int = MAX_RESTARTS,
        **options: Any,
    ) -> RunningEnvs:
        """Build the envs and run them.

        Args:
            env_id: a gymnasium id, a callable, an env or a vector env.
            n_envs: number of envs N; ``None``: 1, or the number in a vector env.
            seed: fixes the envs' random streams.
            max_restarts: see :func:`rlox.envs.make.make_vec_env`.
            options: ``backend``, ``vectorization`` and ``env_kwargs``; see there.

        Raises:
            EnvError: the env cannot be built.
        """
        env = make_vec_env(env_id, n_envs=n_envs, max_restarts=max_restarts, **options)
        return cls(env, seed, owned=fixed_env_count(env_id) is None)

    @classmethod
    def of(cls, algorithm: Any) -> RunningEnvs:
        """Run the envs that an algorithm steps; closing the algorithm closes them.

        Raises:
            EnvError: the env cannot be built.
        """
        cfg = algorithm.config
        envs = cls.make(
            algorithm.env_source,
            cfg.n_envs,
            algorithm.streams.seeds("envs", 1)[0],
            backend=selection(cfg, "env_backend"),
            vectorization=cfg.vectorization,
            env_kwargs=cfg.env_kwargs,
        )
        algorithm.resources.callback(envs.close)
        return envs

    def _reset(self, seeds: list[int]) -> Any:
        obs = self.env.reset_all(seeds)
        self._steps.check_reset(obs)
        require_finite(obs)
        return obs

    def action_masks(self) -> npt.NDArray[np.bool_] | None:
        """Return which next actions are possible; see :class:`rlox.protocols.MaskingVecEnv`."""
        return self._steps.action_masks()

    def step(self, actions: Any) -> VecEnvStep:
        """Step all envs with (N, ...) actions; the caller then sets :attr:`obs`.

        Until then there are no observations: if the step or its caller is interrupted, some envs
        may have moved on, and the old observations would start a false transition.

        Raises:
            EnvError: the step does not match :class:`rlox.protocols.VecEnvStep`, or a reward is
                not finite or too large for float32.
        """
        self._obs = None
        step: VecEnvStep = self.env.step_all(actions)
        self._steps.check(step)
        return step

    def close(self) -> None:
        """Free the resources of the envs that were created here."""
        if self._owned:
            self.env.close()


def leaves_of(spaces: VecEnv | AgentGroup) -> list[list[str]]:
    """Return the leaf names of the observations and of the actions, in column order."""
    return [list(leaf_spaces(spaces.observation_space)), list(leaf_spaces(spaces.action_space))]


def require_same_option(option: str, saved: bool, present: bool) -> None:
    """Check that an option is on exactly if it was on in the checkpoint.

    Raises:
        CheckpointError: the option differs.
    """
    if saved != present:
        raise CheckpointError(
            f"it was saved with {option}={saved}, got {option}={present}; leave the option as it "
            "was, or start a new training to change it"
        )


def require_same_normalization(state: Mapping[str, Any], preprocessor: Any, scaler: Any) -> None:
    """Check that a collector normalises observations and rewards as its checkpoint's did.

    Args:
        state: saved state of the collector.
        preprocessor: its :class:`rlox.envs.preprocessing.Preprocessor`, if any.
        scaler: anything, if it normalises rewards.

    Raises:
        CheckpointError: an option differs.
    """
    normalizes = preprocessor is not None and bool(preprocessor.moments)
    require_same_option("normalize_observations", bool(state.get("observations")), normalizes)
    require_same_option("normalize_rewards", "rewards" in state, scaler is not None)


def require_same_leaves(saved: Any, now: Any) -> None:
    """Refuse leaves in another order than in training; a network cannot tell them apart.

    Raises:
        CheckpointError: the order differs.
    """
    if saved not in (None, now):
        raise CheckpointError(
            f"it was trained with the leaves {saved}, of observations and of actions, and the env "
            f"has {now}; give its spaces the same order, such as by lists of pairs"
        )


def _forms(step: Any, keys: tuple[str, ...]) -> list[Any] | None:
    """Return classes, shapes and dtypes of a step's arrays; ``None`` if it has others."""
    try:
        return [form_of(step[key]) for key in keys]
    except (AttributeError, KeyError, TypeError):
        return None


class CheckedSteps:
    """Checked steps of a vector env, each compared with the first valid one, and any masks."""

    def __init__(self, env: VecEnv) -> None:
        self._env = env
        # asked once: the protocol's instance check takes longer than the masks
        self._masking = env if isinstance(env, MaskingVecEnv) else None
        self._rows = ObservationRows(env.observation_space)
        self._checked = getattr(env, "checks_steps", False)
        self._good: Any = None
        self._n_steps = 0

    def check(self, step: VecEnvStep) -> None:
        """Refuse a step that does not match :class:`rlox.protocols.VecEnvStep`.

        Raises:
            EnvError: see :func:`require_vec_step`; the text gives the number of the step. Or a
                reward is not finite or too large for float32.
        """
        self._n_steps += 1
        if not self._checked:
            seen = _forms(step, STEP_KEYS)
            if seen is None or seen != self._good:
                require_vec_step(step, self._env, f" in step {self._n_steps}")
                self._good = seen
        require_rewards(step["rewards"])
        self._rows.require(step["obs"])
        if step["final_obs"] is not step["obs"]:
            self._rows.require(step["final_obs"])

    def check_reset(self, obs: Any) -> None:
        """Refuse first observations of another nesting, shape or kind, or outside their space.

        Raises:
            EnvError: see :func:`require_observations`.
        """
        what = f"obs{{}} of {type(self._env).__name__}.reset_all"
        require_observations(obs, self._env.observation_space, (self._env.n_envs,), what)
        self._rows.require(obs)
        for name, space in leaf_spaces(self._env.observation_space).items():
            if isinstance(space, Box) and space.dtype.kind == "f":
                rows = (obs[name] if name else obs).astype(space.dtype)
                outside = np.argwhere((rows < space.low) | (rows > space.high))
                if len(outside):
                    raise EnvError(
                        f"env {outside[0][0]} began with {rows[tuple(outside[0])]}, which {space} "
                        "does not hold; change it or the env's observation_space"
                    )

    def action_masks(self) -> npt.NDArray[np.bool_] | None:
        """Return which next actions are possible; see :class:`rlox.protocols.MaskingVecEnv`."""
        return None if self._masking is None else self._masking.action_masks()


SHOWN_KEYS = tuple(MultiAgentObs.__annotations__)
TEAM_STEP_KEYS = tuple(k for k in MultiAgentStep.__annotations__ if k != "final_masks")


class CheckedTeams:
    """Checked steps of a vector env of several agents, each compared with the first valid one."""

    def __init__(self, env: MultiAgentVecEnv) -> None:
        self._env = env
        self._rows = {g.name: ObservationRows(g.observation_space) for g in env.groups}
        self._good: Any = None

    def check(self, step: Any, keys: tuple[str, ...] = TEAM_STEP_KEYS) -> None:
        """Refuse a step, or the result of a reset, that does not match the protocol.

        Args:
            step: result of the env.
            keys: required keys: ``SHOWN_KEYS`` for a reset.

        Raises:
            EnvError: see :func:`require_team_step`; or a number is not finite, or outside its
                space of integers.
        """
        if (seen := _forms(step, keys)) is None or seen != self._good:
            method = "step_all" if keys is TEAM_STEP_KEYS else "reset_all"
            require_team_step(step, self._env, keys, f"{type(self._env).__name__}.{method}")
            self._good = seen
        for group, rows in self._rows.items():
            for key in ("obs", "final_obs"):
                if key in keys:
                    require_finite(step[key][group])
                    rows.require(step[key][group])
            if "rewards" in keys:
                require_rewards(step["rewards"][group])


class EpisodeStatistics:
    """Returns and lengths of the last finished episodes of N envs.

    Args:
        n_envs: number of envs N.
        window: number of episodes that the means cover.
    """

    def __init__(self, n_envs: int, window: int = 100) -> None:
        self._running_return = np.zeros(n_envs)
        self._running_length = np.zeros(n_envs, dtype=np.int64)
        self._returns: deque[float] = deque(maxlen=window)
        self._lengths: deque[int] = deque(maxlen=window)
        self.finished = 0
        """Number of episodes finished so far."""
        self._warned = False

    def add(
        self,
        rewards: npt.NDArray[Any],
        ended: npt.NDArray[np.bool_],
        envs: Any = slice(None),
        lost: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Add T vector steps of M of the envs.

        Args:
            rewards: (T, M).
            ended: (T, M) whether an episode ended with the step.
            envs: a slice, or the (M,) indices, of the N envs.
            lost: (T, M) whether the env was lost before the step; its episode is not counted.
                ``None``: none was.
        """
        if not len(rewards):
            return
        totals = self._running_return[envs] + np.cumsum(rewards, 0, dtype=np.float64)
        over = ended if lost is None else ended | lost
        if not over.any():
            self._running_return[envs] = totals[-1]
            self._running_length[envs] += len(rewards)
            if not (self.finished or self._warned) and self._running_length.sum() >= ENDLESS:
                self._warned = True
                warnings.warn(
                    f"no episode has ended in {ENDLESS:,} env steps; if none ever does, returns "
                    "stay NaN and evaluations fail: wrap the env in gymnasium.wrappers.TimeLimit",
                    stacklevel=2,
                )
            return
        counted = np.zeros_like(self._running_return[envs])
        begin = -self._running_length[envs]
        for t, i in np.argwhere(over):
            if lost is None or not lost[t, i]:
                self._returns.append(float(totals[t, i] - counted[i]))
                self._lengths.append(int(t + 1 - begin[i]))
                self.finished += 1
            counted[i], begin[i] = totals[t, i], t + 1
        self._running_return[envs] = totals[-1] - counted
        self._running_length[envs] = len(rewards) - begin

    def finish(self, returns: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> None:
        """Add episodes that ended elsewhere, in their order."""
        self._returns.extend(returns.tolist())
        self._lengths.extend(lengths.astype(np.int64).tolist())
        self.finished += len(returns)

    def forget(self, envs: Any) -> None:
        """Drop the running episodes of some envs that have been reset; a slice or indices."""
        self._running_return[envs] = 0.0
        self._running_length[envs] = 0

    @property
    def mean_return(self) -> float:
        """Mean undiscounted return of the window's episodes; NaN before the first."""
        return float(np.mean(self._returns)) if self._returns else float("nan")

    @property
    def mean_length(self) -> float:
        """Mean length of the window's episodes in env steps; NaN before the first."""
        return float(np.mean(self._lengths)) if self._lengths else float("nan")

    def metrics(self) -> dict[str, float]:
        """Return the metrics that all algorithms with episodes share."""
        return {
            "mean_reward": self.mean_return,
            "mean_episode_length": self.mean_length,
            "episodes": float(self.finished),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the running sums and the window."""
        return {
            "running_return": self._running_return.copy(),
            "running_length": self._running_length.copy(),
            "returns": np.array(self._returns, dtype=np.float64),
            "lengths": np.array(self._lengths, dtype=np.int64),
            "finished": self.finished,
        }

    def fits(self, state: Mapping[str, Any]) -> bool:
        """Whether a state belongs to statistics of the same number of envs."""
        return len(state["running_return"]) == len(self._running_return)

    def load_state_dict(self, state: Mapping[str, Any], *, keep_running: bool) -> None:
        """Restore the window, and the running sums if the envs continue where they were."""
        if keep_running:
            self._running_return = np.array(state["running_return"], dtype=np.float64)
            self._running_length = np.array(state["running_length"], dtype=np.int64)
        window = self._returns.maxlen
        self._returns = deque(np.asarray(state["returns"], np.float64).tolist(), window)
        self._lengths = deque(np.asarray(state["lengths"], np.int64).tolist(), window)
        self.finished = int(state["finished"])
