"""The training loop: iterate, call the callbacks, log, stop.

Steps are counted in the unit of the algorithm, env steps or gradient steps
(:attr:`rlox.training.hooks.Progress.unit`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass
from typing import Any

from rlox.config.model import require_integer
from rlox.config.schedules import Schedules
from rlox.errors import ConfigError, DivergenceError
from rlox.ranks import RANKS
from rlox.training.hooks import Hooks, StopTraining, Trainable
from rlox.training.parts_of_ranks import agree_on_end, saving


def run(algorithm: Trainable, total_timesteps: int | None) -> dict[str, float]:
    """Train ``algorithm``; see :meth:`rlox.Algorithm.train`."""
    clock = algorithm.clock
    gradient_steps = clock.unit == "gradient_steps"
    argument = "n_gradient_steps" if gradient_steps else "total_timesteps"
    if total_timesteps is None:
        if not clock.remaining:
            raise ValueError(f"there is no interrupted training to finish; pass {argument}")
    else:
        clock.extend(require_integer(argument, total_timesteps, at_least=1))
    metrics: dict[str, float] = {"mean_reward": float("nan")}
    hooks = Hooks(algorithm)
    with saving("alone"):  # the other ranks are busy
        try:
            hooks.call("on_training_start")
            while clock.remaining:
                metrics = _timed_iteration(algorithm, hooks)
                if not _report(algorithm, hooks, metrics):
                    break
        except StopTraining:
            pass
        else:
            _require_finite(algorithm)  # a callback may have changed them after the last iteration
        finally:
            algorithm.callbacks.on_training_end(step=clock.steps, algo=algorithm, metrics=metrics)
    _require_views(algorithm)  # a callback may have replaced parameters in the last iteration
    _require_finite(algorithm)
    return metrics


def run_iteration(algorithm: Trainable) -> dict[str, float]:
    """Run one iteration and return its metrics, without the events of a training's start and end.

    The clock's target, at which schedules end, does not change. A callback that stops the training
    only affects this iteration.

    Raises:
        ConfigError: a schedule ends with the training, but there is no training.
        StopTraining: a callback dropped the iteration.
    """
    schedules: Schedules | None = getattr(algorithm, "schedules", None)
    if schedules is not None and not algorithm.clock.remaining:
        schedules.require_ends()
    hooks = Hooks(algorithm)
    metrics = _timed_iteration(algorithm, hooks)
    _report(algorithm, hooks, metrics)
    _require_views(algorithm)
    return metrics


def _timed_iteration(algorithm: Trainable, hooks: Hooks) -> dict[str, float]:
    """Return the metrics of one iteration, with its speed."""
    clock = algorithm.clock
    started, steps_before, env_steps = time.perf_counter(), clock.steps, clock.env_steps
    hooks.enter("collect")
    clock.in_iteration = True
    iteration = _iterate(algorithm, hooks)
    clock.in_iteration = False
    hooks.enter("other")
    for ranks in RANKS:
        own = clock.env_steps - env_steps
        clock.env_steps = env_steps + int(ranks.total(own, "the number of env steps"))
    clock.iterations += 1
    if not is_dataclass(type(iteration)):
        raise TypeError(
            f"iterate() of the algorithm '{algorithm.name}' must return a frozen dataclass "
            f"of its metrics, got {type(iteration).__name__}"
        )
    counts = {name: float(count) for name, count in clock.counters.items()}
    # not dataclasses.asdict(), whose deep copy takes a tenth of an iteration of 40 env steps
    values = ((field.name, getattr(iteration, field.name)) for field in fields(iteration))
    metrics = _row([*values, ("counters", counts)])
    seconds = time.perf_counter() - started
    metrics[f"{clock.unit}_per_second"] = (clock.steps - steps_before) / seconds
    return metrics


def _report(algorithm: Trainable, hooks: Hooks, metrics: dict[str, float]) -> bool:
    """Log an iteration, call the callbacks, and return whether the training continues."""
    if algorithm.logger is not None:
        algorithm.logger.on_train_step(algorithm.clock.steps, metrics)
    with saving("asked"):  # the other ranks are in agree_on_end
        going_on = bool(hooks.call("on_iteration_end", metrics=metrics)) and not hooks.stopped
    if not RANKS:
        return going_on
    return not agree_on_end(RANKS[0], algorithm, hooks.stop_agreed or not going_on)


def _row(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return an iteration's metrics and counters in one dict, with mappings flattened.

    Raises:
        ConfigError: two metrics have the same name.
    """
    row: dict[str, Any] = {}
    for name, value in values:
        for metric, number in value.items() if isinstance(value, Mapping) else ((name, value),):
            if metric in row:
                raise ConfigError(
                    f"two metrics are called '{metric}'; rename the added loss, term or counter"
                )
            row[metric] = number
    return row


def _iterate(algorithm: Trainable, hooks: Hooks) -> Any:
    """Run an iteration that trains the algorithm's networks, and return its metrics."""
    _require_views(algorithm)
    try:
        with _threads(algorithm.config):
            iteration = algorithm.iterate(hooks)
    except Exception as error:
        # envs refuse the actions of diverged networks; report the divergence instead
        _require_finite(algorithm, error)
        raise
    _require_finite(algorithm)
    return iteration


def _threads(config: Any) -> AbstractContextManager[None]:
    """Return a context with the config's number of torch threads, if set."""
    if not hasattr(config, "torch_threads"):
        return nullcontext()
    from rlox.nn import torch_threads

    return torch_threads(config.torch_threads)


def _require_views(algorithm: Trainable) -> None:
    for optimizer in algorithm.optimizers.values():
        optimizer.require_views()


def _require_finite(algorithm: Trainable, cause: Exception | None = None) -> None:
    diverged = [name for name, opt in algorithm.optimizers.items() if not opt.is_finite()]
    if diverged:
        clock = algorithm.clock
        raise DivergenceError(
            f"the training diverged: after {clock.steps:,} {clock.unit_text} the parameters of "
            f"{' and '.join(diverged)} are not all finite; lower the learning rate, the "
            "coefficients of the loss or the scale of the rewards"
        ) from cause
