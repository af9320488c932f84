"""The one training loop: iterate, tell the callbacks, log, stop.

Every event of a training passes through :class:`Hooks`, which also advances the clock, so that
callbacks see the same env-step count as the log, whatever the algorithm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from numbers import Integral
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlox.algorithm import Algorithm

__all__ = ["Hooks", "StopTraining", "run"]


class StopTraining(Exception):  # noqa: N818  # control flow, not an error
    """Raised through an iteration when a callback asks to stop."""


class Hooks:
    """What an algorithm calls while it iterates.

    Args:
        algorithm: whose clock advances and whose callbacks are called.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self._callbacks = algorithm.callbacks
        self._step_listened = algorithm.callbacks.listens("on_step")
        self._batch_listened = algorithm.callbacks.listens("on_train_batch")

    def env_step(self, count: int) -> None:
        """Report one vector step of ``count`` env steps.

        Raises:
            StopTraining: a callback returned False.
        """
        clock = self._algorithm.clock
        clock.env_steps += count
        if self._step_listened and not self._callbacks.on_step(
            step=clock.env_steps, algo=self._algorithm
        ):
            raise StopTraining

    def rollout_end(self, batch: Any = None) -> None:
        """Report a collected rollout."""
        self._callbacks.on_rollout_end(
            step=self._algorithm.clock.env_steps, algo=self._algorithm, batch=batch
        )

    def train_batch(self, metrics: Callable[[], Mapping[str, float]]) -> None:
        """Report one optimiser step; ``metrics`` is only called when a callback listens."""
        clock = self._algorithm.clock
        clock.gradient_steps += 1
        if self._batch_listened:
            self._callbacks.on_train_batch(
                step=clock.env_steps,
                gradient_step=clock.gradient_steps,
                algo=self._algorithm,
                metrics=dict(metrics()),
            )


def run(algorithm: Algorithm, total_timesteps: int | None) -> dict[str, float]:
    """Train ``algorithm``; see :meth:`rlox.Algorithm.train`."""
    clock = algorithm.clock
    if total_timesteps is None:
        if clock.target_env_steps <= clock.env_steps:
            raise ValueError("there is no interrupted training to finish; pass total_timesteps")
    else:
        clock.target_env_steps = clock.env_steps + _positive_integer(total_timesteps)
    metrics: dict[str, float] = {"mean_reward": float("nan")}
    callbacks, logger = algorithm.callbacks, algorithm.logger
    hooks = Hooks(algorithm)
    try:
        callbacks.on_training_start(algo=algorithm, step=clock.env_steps)
        while clock.env_steps < clock.target_env_steps:
            started, steps_before = time.perf_counter(), clock.env_steps
            iteration = algorithm.iterate(hooks)
            clock.iterations += 1
            metrics = asdict(iteration)
            seconds = time.perf_counter() - started
            metrics["env_steps_per_second"] = (clock.env_steps - steps_before) / seconds
            if logger is not None:
                logger.on_train_step(clock.env_steps, metrics)
            if not callbacks.on_iteration_end(
                step=clock.env_steps, algo=algorithm, metrics=metrics
            ):
                break
    except StopTraining:
        pass
    finally:
        callbacks.on_training_end(algo=algorithm, step=clock.env_steps, metrics=metrics)
    return metrics


def _positive_integer(total_timesteps: object) -> int:
    if isinstance(total_timesteps, bool) or not isinstance(total_timesteps, Integral):
        raise TypeError(f"total_timesteps must be an integer, got {total_timesteps!r}")
    if total_timesteps < 1:
        raise ValueError(f"total_timesteps must be at least 1, got {total_timesteps}")
    return int(total_timesteps)
