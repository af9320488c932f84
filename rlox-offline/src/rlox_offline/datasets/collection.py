"""Recording of random, medium and expert datasets of one env."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import rlox
from rlox.callbacks import Callback
from rlox.errors import ConfigError, DatasetError
from rlox.registry import algorithm_class, config_class

from rlox_offline.datasets.dataset import Dataset
from rlox_offline.datasets.recording import RandomPolicy, RecordingVecEnv, record

__all__ = ["KINDS", "record_sets"]

KINDS = ("random", "medium", "replay", "expert")
"""What is recorded: random actions; a policy of a third of the expert's performance; all that the
training saw until that policy; and the best policy."""

SNAPSHOTS = 20
"""How often the training is evaluated and saved."""


class _Snapshots(Callback):
    """Saves the training after each part of it, and evaluates every saved one."""

    def __init__(self, folder: Path, every: int, env: Any, n_episodes: int) -> None:
        self.found: list[tuple[float, int, Path]] = []
        """(mean return, env steps, checkpoint) of each."""
        self._folder, self._every, self._env, self._n_episodes = folder, every, env, n_episodes
        self._next = every

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Save and evaluate when another part is done."""
        step, algo = kwargs["step"], kwargs["algo"]
        if step < self._next:
            return
        self._next = (step // self._every + 1) * self._every
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

    The expert is the best of 20 snapshots of the training; medium the first one whose return is at
    least a third of the way from the random policy's to the expert's, as in D4RL. Without a
    snapshot that is better than random, ``"random"`` and all that the training saw as ``"replay"``
    are yielded before the error.

    Args:
        name: registered name of an algorithm that learns from an env.
        env_id: gymnasium id.
        total_timesteps: env steps to train for.
        n_transitions: transitions in each of random, medium and expert.
        n_episodes: episodes of each evaluation.
        seed: of training, evaluations and recording; ``None`` takes the options' seed, or 0.
        options: of the algorithm.

    Raises:
        DatasetError: no snapshot is better than random actions.
        RloxError: the algorithm or the env cannot be built, or its transitions not be recorded.
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
