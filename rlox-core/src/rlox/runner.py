"""The one training loop: iterate, tell the callbacks, log, stop.

Every event of a training passes through :class:`Hooks`, which also advances the clock, so that
callbacks see the same count of steps as the log, whatever the algorithm. The steps are env steps,
or gradient steps where no env is stepped (:attr:`rlox.clock.Clock.unit`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

from rlox.callbacks import Phase
from rlox.checks import require_integer
from rlox.errors import DivergenceError

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
        self.step_listened = algorithm.callbacks.listens("on_step")
        """Whether a callback wants to know of every vector step."""
        self.train_batch_listened = algorithm.callbacks.listens("on_train_batch")
        """Whether a callback wants to know of every optimiser step."""
        self.stopped = False
        """Whether a callback has returned False from ``on_step``."""
        self._phase_listened = algorithm.callbacks.listens("on_phase")
        self._phase: Phase = "other"

    def env_step(self, count: int) -> None:
        """Report one vector step of ``count`` env steps.

        Raises:
            StopTraining: a callback returned False.
        """
        clock = self._algorithm.clock
        clock.env_steps += count
        if clock.unit == "env_steps":
            self._step()

    def rollout_end(self, batch: Any = None) -> None:
        """Report a collected rollout; the learning from it begins."""
        self.call("on_rollout_end", batch=batch)
        self.enter("learn")

    def train_batch(self, metrics: Callable[[], Mapping[str, float]]) -> None:
        """Report one minibatch learnt from; ``metrics`` is only called when a callback listens.

        Raises:
            StopTraining: the training is counted in gradient steps and a callback returned False.
        """
        clock = self._algorithm.clock
        clock.gradient_steps += 1
        if self.train_batch_listened:
            self.call("on_train_batch", gradient_step=clock.gradient_steps, metrics=dict(metrics()))
        if clock.unit == "gradient_steps":
            self._step()

    def _step(self) -> None:
        if self.step_listened and not self.call("on_step"):
            self.stopped = True
            raise StopTraining

    def call(self, event: str, **details: Any) -> Any:
        """Call the callbacks, in a phase of its own, and return what they return."""
        before = self._phase
        self.enter("callbacks")
        answer = getattr(self._callbacks, event)(
            step=self._algorithm.clock.steps, algo=self._algorithm, **details
        )
        self.enter(before)
        return answer

    def enter(self, phase: Phase) -> None:
        """Report that the training goes over to another kind of work."""
        self._phase = phase
        if self._phase_listened:
            self._callbacks.on_phase(
                step=self._algorithm.clock.steps, algo=self._algorithm, phase=phase
            )


def run(algorithm: Algorithm, total_timesteps: int | None) -> dict[str, float]:
    """Train ``algorithm``; see :meth:`rlox.Algorithm.train`."""
    clock = algorithm.clock
    argument = "total_timesteps" if clock.unit == "env_steps" else "n_gradient_steps"
    if total_timesteps is None:
        if not clock.remaining:
            raise ValueError(f"there is no interrupted training to finish; pass {argument}")
    else:
        clock.extend(require_integer(argument, total_timesteps, at_least=1))
    metrics: dict[str, float] = {"mean_reward": float("nan")}
    logger = algorithm.logger
    hooks = Hooks(algorithm)
    try:
        hooks.call("on_training_start")
        while clock.remaining:
            started, steps_before = time.perf_counter(), clock.steps
            hooks.enter("collect")
            iteration = _iterate(algorithm, hooks)
            hooks.enter("other")
            clock.iterations += 1
            if not is_dataclass(type(iteration)):
                raise TypeError(
                    f"iterate() of the algorithm '{algorithm.name}' must return a frozen dataclass "
                    f"of its metrics, got {type(iteration).__name__}"
                )
            metrics = asdict(iteration)
            seconds = time.perf_counter() - started
            metrics[f"{clock.unit}_per_second"] = (clock.steps - steps_before) / seconds
            if logger is not None:
                logger.on_train_step(clock.steps, metrics)
            if not hooks.call("on_iteration_end", metrics=metrics) or hooks.stopped:
                break
    except StopTraining:
        pass
    finally:
        algorithm.callbacks.on_training_end(step=clock.steps, algo=algorithm, metrics=metrics)
    _require_views(algorithm)  # a callback may have replaced parameters in the last iteration
    return metrics


def _iterate(algorithm: Algorithm, hooks: Hooks) -> Any:
    """Return the metrics of an iteration that learnt what the algorithm's networks are."""
    _require_views(algorithm)
    try:
        iteration = algorithm.iterate(hooks)
    except Exception as error:
        # envs refuse the actions of networks that have diverged, which is not their fault
        _require_finite(algorithm, error)
        raise
    _require_finite(algorithm)
    return iteration


def _require_views(algorithm: Algorithm) -> None:
    for optimizer in algorithm.optimizers.values():
        optimizer.require_views()


def _require_finite(algorithm: Algorithm, cause: Exception | None = None) -> None:
    diverged = [name for name, opt in algorithm.optimizers.items() if not opt.is_finite()]
    if diverged:
        clock = algorithm.clock
        raise DivergenceError(
            f"the training diverged: after {clock.steps:,} {clock.unit_text} the parameters of "
            f"{' and '.join(diverged)} are not all finite; lower the learning rate, the "
            "coefficients of the loss or the scale of the rewards"
        ) from cause
