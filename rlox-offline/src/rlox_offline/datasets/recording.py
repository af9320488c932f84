"""A vector env that records transitions, and datasets recorded from a policy or a training."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import rlox
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from rlox.callbacks.base import Callback, Multiples
from rlox.envs import CheckedSteps, env_id_of, fixed_env_count, make_vec_env
from rlox.envs.evaluation import OnePlayer, Predictor
from rlox.errors import ConfigError, DatasetError, SpaceError
from rlox.protocols import VecEnv, VecEnvStep
from rlox.registry import algorithm_class, config_class
from rlox.seeding import SeedStreams
from rlox.spaces.rows import ObservationRows, batch_of_actions, is_bounded

from rlox_offline.datasets.columns import Columns
from rlox_offline.datasets.dataset import Dataset

KINDS = ("random", "medium", "replay", "expert")
"""Kinds of recordings: random actions; a policy at a third of the expert's performance; all
transitions of the training up to that policy; and the best policy."""

SNAPSHOTS = 20
"""Number of evaluated checkpoints per training."""

BLOCK_BYTES = 2**24
"""Size of each block of arrays that vector steps are copied into."""


class RecordingVecEnv:
    """A vector env that keeps every transition; algorithms train on it as on any other.

    Args:
        env: a gymnasium id, a callable, an env or a vector env.
        n_envs: number of envs N; ``None`` takes 1, or a vector env's number.

    Raises:
        EnvError: the env cannot be built.
        SpaceError: observations are not arrays, or actions neither arrays nor integers from 0.
    """

    def __init__(self, env: Any, n_envs: int | None = None) -> None:
        self.env_id = env_id_of(env)
        self._env: VecEnv = make_vec_env(env, n_envs=n_envs)
        self.n_envs = self._env.n_envs
        """Number of envs N."""
        self.observation_space = self._env.observation_space
        """Space of one env's observation."""
        self.action_space = self._env.action_space
        """Space of one env's action."""
        observations, actions = self.observation_space, self.action_space
        if not isinstance(observations, (spaces.Box, spaces.Discrete)):
            raise SpaceError(f"observations must be of a Box to be recorded, got {observations}")
        discrete = isinstance(actions, spaces.Discrete) and actions.start == 0
        if not (discrete or (isinstance(actions, spaces.Box) and len(actions.shape) == 1)):
            raise SpaceError(
                f"actions must be of a one-dimensional Box or of a Discrete from 0 on to be "
                f"recorded, got {actions}"
            )
        self._rows = ObservationRows(self.observation_space)
        self._actions = batch_space(self.action_space, self.n_envs)
        self._steps, self._checks = _Steps(), CheckedSteps(self._env)
        self._obs: npt.NDArray[Any] | None = None

    @property
    def n_transitions(self) -> int:
        """Number of recorded transitions."""
        return len(self._steps) * self.n_envs

    def reset_all(self, seed: int | Sequence[int] | None = None) -> npt.NDArray[Any]:
        """Reset all envs; running episodes are cut."""
        self._steps.cut()
        obs: npt.NDArray[Any] = self._env.reset_all(seed)
        self._checks.check_reset(obs)
        self._obs = np.array(obs)
        return obs

    def step_all(self, actions: Any) -> VecEnvStep:
        """Step all envs and keep the transitions."""
        assert self._obs is not None
        taken = batch_of_actions(actions, self._actions)
        step = self._env.step_all(taken.copy())  # a copy, as the env may write into it
        self._checks.check(step)
        self._steps.append(
            {
                "obs": self._rows.stored(self._obs),
                "actions": taken,
                "rewards": np.asarray(step["rewards"], np.float64),
                "next_obs": self._rows.stored(step["final_obs"]),
                "terminated": step["terminated"],
                "truncated": step["truncated"],
            }
        )
        self._obs = np.array(step["obs"])
        return step

    def action_masks(self) -> npt.NDArray[np.bool_] | None:
        """Return the masks of the next actions; see :class:`rlox.protocols.MaskingVecEnv`."""
        return self._checks.action_masks()

    def close(self) -> None:
        """Free the envs' resources; the recording stays."""
        self._env.close()

    def dataset(self, n_transitions: int | None = None, **known: Any) -> Dataset:
        """Return the recording, each env's episodes in a row.

        Args:
            n_transitions: number of transitions from the start, rounded up to whole vector
                steps; ``None`` takes all.
            known: further arguments of :class:`Dataset`.

        Raises:
            DatasetError: nothing was recorded.
        """
        count = len(self._steps)
        if n_transitions is not None:
            count = min(count, -(-n_transitions // self.n_envs))
        if count < 1:
            raise DatasetError("nothing was recorded")
        # (T, N, ...) to (N, T, ...), so that episodes are consecutive
        columns = {name: c.swapaxes(0, 1) for name, c in self._steps.first(count).items()}
        # the end of the recording cuts every env's episode
        columns["truncated"][:, -1] |= ~columns["terminated"][:, -1]
        space = self.action_space
        if isinstance(space, spaces.Discrete):
            known = {"n_actions": int(space.n), **known}
        elif isinstance(space, spaces.Box) and is_bounded(space.low, space.high):
            known = {"act_low": space.low, "act_high": space.high, **known}
        rows = {name: column.reshape(-1, *column.shape[2:]) for name, column in columns.items()}
        return Dataset(rows, **{"env_id": self.env_id, **known})


class _Steps:
    """Consecutive vector steps, in blocks with little memory overhead."""

    def __init__(self) -> None:
        self._blocks: list[npt.NDArray[Any]] = []
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def append(self, step: Columns) -> None:
        """Copy the arrays (N, ...) of one vector step."""
        if self._n == sum(map(len, self._blocks)):
            row = np.dtype([(name, column.dtype, column.shape) for name, column in step.items()])
            self._blocks.append(np.empty(max(BLOCK_BYTES // row.itemsize, 1), row))
        self._n += 1
        for name, column in step.items():
            self._last[name] = column

    @property
    def _last(self) -> Any:
        return self._blocks[-1][(self._n - 1) % len(self._blocks[-1])]

    def cut(self) -> None:
        """Mark the running episodes as truncated."""
        if self._n:
            self._last["truncated"] |= ~self._last["terminated"]

    def first(self, count: int) -> Columns:
        """Return copies (T, N, ...) of the first ``count`` steps."""
        rows = np.concatenate(self._blocks[: -(-count // len(self._blocks[0]))])[:count]
        return {name: rows[name] for name in rows.dtype.names or ()}


class RandomPolicy:
    """Draws actions uniformly from an action space.

    Args:
        space: a bounded ``Box`` or ``Discrete``.
        seed: fixes the actions.

    Raises:
        SpaceError: the space is neither.
    """

    def __init__(self, space: gymnasium.Space[Any], seed: int = 0) -> None:
        bounded = isinstance(space, spaces.Box) and is_bounded(space.low, space.high)
        if not (bounded or isinstance(space, spaces.Discrete)):
            raise SpaceError(f"random actions are drawn from a bounded space, got {space}")
        self._space = space
        self._rng = np.random.default_rng(seed)

    def predict(
        self,
        obs: npt.ArrayLike,
        deterministic: bool = True,
        *,
        action_masks: npt.NDArray[np.bool_] | None = None,
    ) -> Any:
        """Return B allowed random actions for B observations, whatever ``deterministic`` is."""
        count, space = len(np.asarray(obs)), self._space
        if action_masks is not None:
            return ((1 + self._rng.random(action_masks.shape)) * action_masks).argmax(1)
        if isinstance(space, spaces.Discrete):
            return self._rng.integers(space.n, size=count)
        assert isinstance(space, spaces.Box)
        drawn = self._rng.uniform(space.low, space.high, (count, *space.shape))
        return drawn.astype(space.dtype)


def record(
    policy: Predictor | None,
    env: Any,
    n_transitions: int,
    *,
    deterministic: bool = False,
    n_envs: int | None = None,
    seed: int = 0,
    **known: Any,
) -> Dataset:
    """Return transitions of a policy acting in an env.

    Args:
        policy: an algorithm, or anything with its ``predict``; ``None`` draws random actions.
        env: an id, a callable, an env or a vector env; the caller closes the last two.
        n_transitions: number of transitions, rounded up to whole vector steps.
        deterministic: take the policy's mode instead of samples; D4RL's sets are sampled.
        n_envs: number of envs stepped together; episodes running at the end are cut.
        seed: fixes the env's first states and random actions.
        known: further arguments of :class:`Dataset`.

    Raises:
        EnvError: the env cannot be built.
        SpaceError: observations or actions cannot be recorded, random actions cannot be drawn, or
            the env masks actions and the policy does not take masks.
        ValueError: ``n_transitions`` is not positive.
    """
    if n_transitions < 1:
        raise ValueError(f"n_transitions must be at least 1, got {n_transitions}")
    recording = RecordingVecEnv(env, n_envs)
    try:
        acting = policy or RandomPolicy(recording.action_space, seed)
        # handles memory and masks as evaluations do
        player = OnePlayer(acting, recording, deterministic)
        player.begin(SeedStreams(seed).seeds("recording", recording.n_envs))
        while recording.n_transitions < n_transitions:
            player.step()
        return recording.dataset(**known)
    finally:
        if fixed_env_count(env) is None:
            recording.close()


class _Snapshots(Callback):
    """Saves and evaluates the training at regular intervals."""

    def __init__(self, folder: Path, every: int, env: Any, n_episodes: int) -> None:
        self.found: list[tuple[float, int, Path]] = []
        """(mean return, env steps, checkpoint) per snapshot."""
        self._folder, self._env, self._n_episodes = folder, env, n_episodes
        self._due = Multiples("every", every)

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Save and evaluate once per interval."""
        step, algo = kwargs["step"], kwargs["algo"]
        if self._due.reached(step):
            path = self._folder / f"{step}.safetensors"
            algo.save(path)
            result = algo.evaluate(self._env, n_episodes=self._n_episodes, seed=0)
            self.found.append((result.mean_return, step, path))


def record_sets(
    name: str,
    env_id: str,
    *,
    total_timesteps: int,
    n_transitions: int = 100_000,
    n_episodes: int = 20,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[tuple[str, Dataset]]:
    """Train an algorithm and yield the datasets of all :data:`KINDS` with their names.

    The expert is the best of 20 snapshots of the training; medium is the first one whose return is
    at least a third of the way from the random policy's to the expert's, as in D4RL. If no snapshot
    beats random actions, ``"random"`` and, as ``"replay"``, the whole training are yielded before
    the error.

    Args:
        name: registered name of an algorithm that learns from an env.
        env_id: gymnasium id.
        total_timesteps: env steps to train for.
        n_transitions: size of each of random, medium and expert.
        n_episodes: episodes per evaluation.
        seed: seed of training and recording; ``None`` takes the options' seed, or 0.
        options: options of the algorithm.

    Raises:
        DatasetError: no snapshot is better than random actions.
        RloxError: the algorithm or the env cannot be built, or its transitions not recorded.
    """
    if rlox.spec(name).needs != ("env",):
        raise ConfigError(
            f"datasets are recorded with algorithms that learn in an env, not '{name}'"
        )
    options = dict(options or {})
    seed = options["seed"] = int(options.get("seed") or 0) if seed is None else seed
    config: Any = config_class(name)(**options)
    training = RecordingVecEnv(env_id, getattr(config, "n_envs", None))
    try:
        random_policy = RandomPolicy(training.action_space, seed)
        with tempfile.TemporaryDirectory() as folder:
            every = max(total_timesteps // SNAPSHOTS, 1)
            snapshots = _Snapshots(Path(folder), every, env_id, n_episodes)
            with rlox.make(name, env=training, callbacks=[snapshots], **options) as algorithm:
                algorithm.train(total_timesteps)
            random = rlox.evaluate(random_policy, env_id, n_episodes=n_episodes, seed=0).mean_return
            expert, _, expert_path = max(snapshots.found)
            known: dict[str, Any] = {"random_return": random}
            if expert > random:
                known["expert_return"] = expert

            def acting(path: Path) -> Dataset:
                policy = algorithm_class(name).from_checkpoint(path, env_id=env_id)
                with policy:
                    return record(policy, env_id, n_transitions, seed=seed, **known)

            yield "random", record(None, env_id, n_transitions, seed=seed, **known)
            if expert <= random:
                yield "replay", training.dataset(**known)
                raise DatasetError(
                    f"no policy of the training is better than random actions (the best returns "
                    f"{expert:.1f}, random {random:.1f}), so there are no medium and expert; train "
                    "for longer, or with other options"
                )
            threshold = random + (expert - random) / 3
            _, medium_step, medium_path = next(f for f in snapshots.found if f[0] >= threshold)
            yield "medium", acting(medium_path)
            yield "replay", training.dataset(medium_step, **known)
            yield "expert", acting(expert_path)
    finally:
        training.close()
