"""The interface between the loop and an algorithm: its counts, its parts, and hooks.

Every event of a training passes through :class:`Hooks`, which also advances the clock, so that
callbacks see the same count of steps as the log, for every algorithm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from rlox.callbacks import CallbackList, Phase
from rlox.config.model import require_integer
from rlox.errors import CheckpointError
from rlox.logging import LoggerCallback, Table
from rlox.ranks import RANKS
from rlox.seeding import SeedStreams

if TYPE_CHECKING:
    from rlox.protocols import Optimizer

MOST = 2**53
"""A count that no training reaches."""

COUNTERS = ("env_steps", "gradient_steps", "iterations")

PULSE = 1.0
"""Minimum seconds between two ``on_pulse`` events."""


@dataclass
class Progress:
    """Counters of one training, one object per algorithm.

    Raises:
        ValueError: ``unit`` is not a counter, or a further counter has another attribute's name.
    """

    unit: str = "env_steps"
    """Unit of :attr:`steps`: ``"env_steps"``, ``"gradient_steps"`` or a further counter."""
    env_steps: int = 0
    """Env steps: one env stepped once, so N envs stepped together count N."""
    gradient_steps: int = 0
    """Minibatches learnt from, each one step of every optimiser that takes part."""
    iterations: int = 0
    """Completed rounds of collecting and learning, or of learning alone."""
    target: int = 0
    """Steps in :attr:`unit` at which the current training ends; schedules run until here."""
    counters: dict[str, int] = field(default_factory=dict)
    """Further cumulative counters by name, such as prompts and tokens; an algorithm declares them
    (:attr:`rlox.Algorithm.counters`) and :meth:`rlox.training.Hooks.count` advances them."""
    in_iteration: bool = False
    """Whether an iteration is under way; not saved."""

    def __post_init__(self) -> None:
        for name in self.counters:
            if not name.isidentifier() or name.startswith("target_") or hasattr(self, name):
                raise ValueError(
                    f"a counter must be called by an identifier that Progress does not have, got "
                    f"'{name}'; rename it"
                )
        known = ("env_steps", "gradient_steps", *self.counters)
        if self.unit not in known:
            raise ValueError(
                f"step_unit must be one of {', '.join(known)}, got '{self.unit}'; declare it in "
                "counters"
            )

    @property
    def unit_text(self) -> str:
        """:attr:`unit` as readable text, ``"env steps"``."""
        return self.unit.replace("_", " ")

    @property
    def steps(self) -> int:
        """Steps done in :attr:`unit`: the ``step`` of every callback and log row."""
        found = self.counters if self.unit in self.counters else vars(self)
        return int(found[self.unit])

    def vector_steps_left(self, n_envs: int, steps_per_iteration: int) -> int:
        """Return the vector steps to the iteration's end, fewer if the last was interrupted.

        Args:
            n_envs: number of envs that step together.
            steps_per_iteration: env steps of an iteration, rounded up to whole vector steps.
        """
        vector_steps = -(-steps_per_iteration // n_envs)
        return vector_steps - self.env_steps // n_envs % vector_steps

    def progress(self) -> dict[str, int]:
        """Return :attr:`steps` under the name of :attr:`unit`, for a run's records."""
        return {self.unit: self.steps}

    @property
    def target_env_steps(self) -> int:
        """The :attr:`target` if env steps are counted, else 0."""
        return self.target if self.unit == "env_steps" else 0

    @property
    def target_gradient_steps(self) -> int:
        """The :attr:`target` if gradient steps are counted, else 0."""
        return self.target if self.unit == "gradient_steps" else 0

    @property
    def remaining(self) -> int:
        """Steps in :attr:`unit` until the current training ends; 0 after its end."""
        return max(self.target - self.steps, 0)

    def extend(self, count: int) -> None:
        """Let the training end after ``count`` more steps."""
        self.target = self.steps + count

    def state_dict(self) -> dict[str, int]:
        """Return the counters and the target."""
        counts = {name: getattr(self, name) for name in COUNTERS}
        return {**counts, **self.counters, f"target_{self.unit}": self.target}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the counters and the target; missing further counters begin at 0.

        Raises:
            ValueError: one of them is not a possible count.
        """
        for name in COUNTERS:
            setattr(self, name, _count(name, state[name]))
        self.counters = {name: _count(name, state.get(name, 0)) for name in self.counters}
        target = f"target_{self.unit}"
        self.target = _count(target, state[target])


def _count(name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MOST:
        raise ValueError(f"{name} must be an integer in [0, {MOST}], got {value!r}")
    return value


def unit_of(state: Mapping[str, Any]) -> str:
    """Return the unit of a :meth:`Progress.state_dict`.

    Raises:
        KeyError: the state has no target, hence no unit.
    """
    for name in state:
        if name.startswith("target_"):
            return name.removeprefix("target_")
    raise KeyError("target")


class NamedLosses(Protocol):
    """The losses that a user added, by name as in checkpoints.

    :class:`rlox.losses.AddedLosses` is one.
    """

    @property
    def names(self) -> list[str]:
        """A name for every loss, sorted."""

    def require_same(self, saved: Collection[str]) -> None:
        """Raise a CheckpointError unless ``saved`` are the names of these losses."""


class NoLosses:
    """Placeholder for algorithms that take no added losses."""

    names: ClassVar[list[str]] = []

    def require_same(self, saved: Collection[str]) -> None:
        """Check that a checkpoint was trained without any.

        Raises:
            CheckpointError: it was trained with some.
        """
        if saved:
            raise CheckpointError(
                f"it was trained with the added losses {sorted(saved)}, which this algorithm does "
                "not take; load it with the version of the algorithm that does"
            )


class Trainable(Protocol):
    """The interface of an algorithm for :func:`rlox.training.loop.run` and for checkpoints.

    :class:`rlox.Algorithm` is one.
    """

    name: ClassVar[str]
    config_class: ClassVar[Any]
    """A class of options, narrower than :class:`rlox.Config`."""
    env_required: ClassVar[bool]
    config: Any
    env_source: Any
    clock: Progress
    streams: SeedStreams
    callbacks: CallbackList
    logger: LoggerCallback | None
    own_objective: Any
    """A user's objective instead of the algorithm's; ``None`` keeps the latter."""
    own_parts: Mapping[str, Any]
    """A replay buffer or exploration that the user passed, by argument: a registered name or an
    object."""

    @property
    def optimizers(self) -> Mapping[str, Optimizer]:
        """Optimisers by the name of the network or part that learns."""

    @property
    def added_losses(self) -> NamedLosses:
        """The losses that a user added."""

    def iterate(self, hooks: Any) -> Any:
        """Collect once, learn once, and return a frozen dataclass of float metrics."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that training changes, as nested dicts of arrays and plain values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""


class StopTraining(Exception):  # noqa: N818  # control flow, not an error
    """Raised through an iteration when a callback asks to stop."""


class Hooks:
    """Methods for an algorithm to call while it iterates.

    Args:
        algorithm: whose clock advances and whose callbacks are called.
    """

    def __init__(self, algorithm: Trainable) -> None:
        self._algorithm = algorithm
        self._callbacks = algorithm.callbacks
        self.step_listened = algorithm.callbacks.listens("on_step")
        """Whether a callback handles vector steps."""
        self.train_batch_listened = algorithm.callbacks.listens("on_train_batch")
        """Whether a callback handles optimiser steps."""
        self._rollout_listened = algorithm.callbacks.listens("on_rollout_end")
        self.stopped = False
        """Whether a callback has returned False from ``on_step``."""
        self.stop_agreed = False
        """The same for several ranks, which all stop at the iteration's end."""
        self._phase_listened = algorithm.callbacks.listens("on_phase")
        self._pulse_listened = algorithm.callbacks.listens("on_pulse")
        self._next_pulse = time.monotonic() + PULSE
        self._phase: Phase = "other"

    def env_step(self, count: int) -> None:
        """Report one vector step of ``count`` env steps.

        Raises:
            StopTraining: a callback returned False.
        """
        self._algorithm.clock.env_steps += count
        self._advanced("env_steps")

    def rollout_end(self, batch: Any = None) -> None:
        """Report a collected rollout, before learning from it."""
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
        self._advanced("gradient_steps")

    def count(self, name: str, count: int) -> None:
        """Report progress in a further counter of the algorithm, such as tokens.

        Args:
            name: one of :attr:`rlox.Algorithm.counters`.
            count: the increment.

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
        self._advanced(name)

    def table(self, name: str, table: Table) -> None:
        """Log a table, such as sampled completions; nothing happens without a logger.

        Args:
            name: of the table.
            table: columns of equal length by name.
        """
        algorithm = self._algorithm
        if algorithm.logger is not None:
            algorithm.logger.on_table(algorithm.clock.steps, name, table)

    def _advanced(self, counter: str) -> None:
        """Call what is due after progress in a counter."""
        if self._pulse_listened and time.monotonic() >= self._next_pulse:
            self.call("on_pulse")
            self._next_pulse = time.monotonic() + PULSE
        counts = self.step_listened and self._algorithm.clock.unit == counter
        if counts and not self.call("on_step"):
            if RANKS:  # the others continue the iteration, and wait for this rank
                self.stop_agreed = True
                return
            self.stopped = True
            raise StopTraining

    def call(self, event: str, **details: Any) -> Any:
        """Call the callbacks, timed as a separate phase, and return their answer."""
        before = self._phase
        self.enter("callbacks")
        answer = getattr(self._callbacks, event)(
            step=self._algorithm.clock.steps, algo=self._algorithm, **details
        )
        self.enter(before)
        return answer

    def enter(self, phase: Phase) -> None:
        """Report that the training switches to another phase."""
        self._phase = phase
        if self._phase_listened:
            self._callbacks.on_phase(
                step=self._algorithm.clock.steps, algo=self._algorithm, phase=phase
            )
