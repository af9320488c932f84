"""Trainers that run an algorithm until conditions hold, and files that describe one."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from rlox.config.files import read_mapping
from rlox.errors import ConfigError
from rlox.logging import LoggerCallback, MLflowLogger
from rlox.training.loop import run_iteration

from rlox_rl8.algorithms import AlgorithmConfig, RecurrentAlgorithmConfig
from rlox_rl8.conditions import Condition
from rlox_rl8.rl8_ppo import RL8PPO
from rlox_rl8.rl8_recurrent_ppo import RL8RecurrentPPO
from rlox_rl8.vec_envs import imported

CLASSES = ("model_cls", "distribution_cls", "optimizer_cls")
"""Arguments given by dotted names in a file."""


class GenericTrainerBase:
    """Base of both kinds; see :class:`Trainer`."""

    kind: Any

    def __init__(self, algorithm: Any, /, *, logger: LoggerCallback | None = None) -> None:
        self.algorithm = algorithm
        self.logger = _of_active_run(algorithm.params) if logger is None else logger
        count = algorithm.hparams.num_envs
        self.training = self.kind(type(algorithm.env), agent=algorithm, seed=0, n_envs=count)
        self.state = {"algorithm/collects": 0, "algorithm/steps": 0, "env/steps": 0}
        """Counters of calls and of env steps."""

    def step(self, *, env_config: dict[str, Any] | None = None) -> dict[str, Any]:
        """Collect and learn once through rlox's loop, log, and return all statistics.

        ``env_config`` is passed to the env's reset, if one is due.
        """
        memory = self.algorithm.memory_stats()
        self.training.env_config = env_config
        run_iteration(self.training)
        stats = {**memory, **self.training.last_stats}
        self.state["algorithm/collects"] += 1
        self.state["algorithm/steps"] += 1
        self.state["env/steps"] += int(stats["env/steps"])
        stats |= self.state
        self._log(stats)
        return stats

    def eval(
        self, *, env_config: dict[str, Any] | None = None, deterministic: bool = True
    ) -> dict[str, Any]:
        """Collect from one reset to the next without learning, and return ``eval/`` statistics.

        The arguments are those of :meth:`rlox_rl8.Algorithm.collect`.

        Raises:
            RuntimeError: the env is in the middle of its horizons.
            ValueError: ``env_config`` is given, but the env is not reset again.
        """
        algorithm, every = self.algorithm, self.algorithm.horizons_per_env_reset
        if every > 0 and algorithm.state.horizons % every:
            raise RuntimeError(
                f"{type(self).__name__}.eval works at resets of the env, every {every} horizons; "
                f"{algorithm.state.horizons} were collected"
            )
        if every < 0 and env_config is not None and algorithm.state.horizons:
            raise ValueError("env_config has no effect: the env is not reset again; leave it out")
        given = {"env_config": env_config, "deterministic": deterministic}
        found = [algorithm.collect(**given) for _ in range(max(1, every))]
        algorithm.state.buffered = False
        self.state["algorithm/collects"] += len(found)
        stats = {f"eval/{key}": _reduce(key, [f[key] for f in found]) for key in found[0]}
        self._log(stats)
        return stats

    def run(
        self,
        *,
        env_config: dict[str, Any] | None = None,
        eval_env_config: dict[str, Any] | None = None,
        steps_per_eval: int | None = None,
        stop_conditions: Sequence[Condition] | None = None,
        max_steps: int | None = None,
    ) -> dict[str, Any]:
        """Train until a condition holds, and return the last statistics.

        Args:
            env_config: passed to resets in training.
            eval_env_config: passed to resets in evaluation; ``None``: ``env_config``, unless the
                env is reset only once.
            steps_per_eval: steps between evaluations; ``None``: no evaluations.
            stop_conditions: called with every step's statistics and the last evaluation's, which
                are NaN before the first.
            max_steps: maximum number of steps; ``None``: unbounded.

        Raises:
            ValueError: no argument ends the training, or evaluations do not coincide with resets.
        """
        if not stop_conditions and max_steps is None:
            raise ValueError("nothing ends this training; pass stop_conditions or max_steps")
        every = self.algorithm.horizons_per_env_reset
        if steps_per_eval is not None and (
            steps_per_eval < 1 or (every > 0 and steps_per_eval % every)
        ):
            raise ValueError(
                f"steps_per_eval must be a multiple of horizons_per_env_reset {every}, got "
                f"{steps_per_eval}"
            )
        if eval_env_config is None and every > 0:
            eval_env_config = env_config
        stats: dict[str, Any] = {}
        steps = 0
        while max_steps is None or steps < max_steps:
            stats |= self.step(env_config=env_config)
            steps += 1
            if steps_per_eval is not None and steps % steps_per_eval == 0:
                stats |= {**self.eval(env_config=eval_env_config), **self.state}
            pending = {} if steps_per_eval is None else {f"eval/{key}": math.nan for key in stats}
            if any([condition({**pending, **stats}) for condition in stop_conditions or ()]):  # noqa: C419
                break
        return stats

    def _log(self, stats: Mapping[str, Any]) -> None:
        if self.logger is not None:
            self.logger.on_train_step(self.state["env/steps"], dict(stats))


def _of_active_run(params: Mapping[str, Any]) -> LoggerCallback | None:
    """Return a logger into MLflow's active run, if the caller has begun one."""
    mlflow = sys.modules.get("mlflow")
    run = None if mlflow is None else mlflow.active_run()
    return run and MLflowLogger(run_id=run.info.run_id, params=params, prefixes=False)


def _reduce(key: str, values: Sequence[float]) -> float:
    """Combine a statistic of several horizons; deviations by their root mean square."""
    ways: dict[str, Callable[[Sequence[float]], float]] = {
        "min": min,
        "max": max,
        "mean": lambda x: sum(x) / len(x),
        "std": lambda x: math.sqrt(sum(v * v for v in x) / len(x)),
    }
    return ways.get(key.rpartition("/")[2], sum)(values)  # type: ignore[no-any-return]


class Trainer(GenericTrainerBase):
    """Trains a feed-forward algorithm.

    Args:
        algorithm: from :meth:`rlox_rl8.AlgorithmConfig.build`.
        logger: receives all statistics, by env steps; ``None``: MLflow's active run, if any, with
            :attr:`rlox_rl8.Algorithm.params` and rl8's keys.
    """

    kind = RL8PPO


class RecurrentTrainer(GenericTrainerBase):
    """Trains a recurrent algorithm; see :class:`Trainer`."""

    kind = RL8RecurrentPPO


@dataclass
class TrainConfig:
    """A trainer's parts, as given in a file.

    Args:
        env_cls: a class of envs.
        algorithm_config: arguments of the algorithm's config.
        recurrent: whether the algorithm is recurrent.
    """

    env_cls: Any
    algorithm_config: dict[str, Any] = field(default_factory=dict)
    recurrent: bool = False

    def build(self) -> Trainer | RecurrentTrainer:
        """Return the trainer."""
        if self.recurrent:
            recurrent = RecurrentAlgorithmConfig(**self.algorithm_config).build(self.env_cls)
            return RecurrentTrainer(recurrent)
        return Trainer(AlgorithmConfig(**self.algorithm_config).build(self.env_cls))

    @classmethod
    def from_file(cls, path: str | Path) -> TrainConfig:
        """Read a YAML or JSON file; classes are given by dotted names and imported.

        Raises:
            ConfigError: the file or a name is wrong.
        """
        found = dict(read_mapping(Path(path)))
        config = dict(found.get("algorithm_config") or {})
        config |= {key: imported(config[key]) for key in CLASSES if config.get(key)}
        recurrent, names = found.get("recurrent", False), {each.name for each in fields(cls)}
        if "env_cls" not in found or set(found) - names or not isinstance(recurrent, bool):
            raise ConfigError(
                f"'{path}' must name env_cls, may have algorithm_config and recurrent, true or "
                f"false, and nothing else, got {found}"
            )
        return cls(imported(found["env_cls"]), config, recurrent)
