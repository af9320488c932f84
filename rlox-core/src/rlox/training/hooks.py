"""Hooks: how an algorithm reports its steps while it iterates.

Every event of a training passes through :class:`Hooks`, which also advances the clock, so that
callbacks see the same count of steps as the log, whatever the algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlox.callbacks import Phase
from rlox.config.model import require_integer
from rlox.logging import Table
from rlox.ranks import RANKS
from rlox.training.trainable import Trainable


class StopTraining(Exception):  # noqa: N818  # control flow, not an error
    """Raised through an iteration when a callback asks to stop."""


class Hooks:
    """What an algorithm calls while it iterates.

    Args:
        algorithm: whose clock advances and whose callbacks are called.
    """

    def __init__(self, algorithm: Trainable) -> None:
        self._algorithm = algorithm
        self._callbacks = algorithm.callbacks
        self.step_listened = algorithm.callbacks.listens("on_step")
        """Whether a callback wants to know of every vector step."""
        self.train_batch_listened = algorithm.callbacks.listens("on_train_batch")
        """Whether a callback wants to know of every optimiser step."""
        self._rollout_listened = algorithm.callbacks.listens("on_rollout_end")
        self.stopped = False
        """Whether a callback has returned False from ``on_step``."""
        self.stop_agreed = False
        """The same of several ranks, all of which stop at the iteration's end."""
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
        if self._rollout_listened:
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

    def count(self, name: str, count: int) -> None:
        """Report progress in a further counter of the algorithm, such as tokens.

        Args:
            name: one of :attr:`rlox.Algorithm.counters`.
            count: what is added.

        Raises:
            ValueError: the algorithm declares no such counter, or ``count`` is negative.
            StopTraining: the training is counted in it and a callback returned False.
        """
        clock = self._algorithm.clock
        if name not in clock.counters:
            raise ValueError(
                f"the counters of '{self._algorithm.name}' are {sorted(clock.counters)}, got "
                f"'{name}'; declare it in the class's counters"
            )
        clock.counters[name] += require_integer(name, count, at_least=0)
        if clock.unit == name:
            self._step()

    def table(self, name: str, table: Table) -> None:
        """Log a table, such as sampled completions; nothing happens without a logger.

        Args:
            name: what the rows are.
            table: columns of equal length by name.
        """
        algorithm = self._algorithm
        if algorithm.logger is not None:
            algorithm.logger.on_table(algorithm.clock.steps, name, table)

    def _step(self) -> None:
        if self.step_listened and not self.call("on_step"):
            if RANKS:  # the others go on with the iteration, and wait for us
                self.stop_agreed = True
                return
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
