"""Schedules of coefficients over env steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from rlox_rl8.data import ScheduleKind


class Scheduler(Protocol):
    """A value over a count."""

    def step(self, count: int, /) -> float:
        """Return the value at ``count``."""


class ConstantScheduler:
    """A constant value."""

    def __init__(self, value: float, /) -> None:
        self.value = value

    def step(self, count: int, /) -> float:
        """Return the value."""
        return self.value


class StepScheduler:
    """The value of the last point at or before the count.

    Args:
        schedule: points (count, value) with rising counts from 0.

    Raises:
        ValueError: the points are empty, unordered or do not begin at 0.
    """

    def __init__(self, schedule: Sequence[tuple[int, float]], /) -> None:
        self.counts, self.values = [int(c) for c, _ in schedule], [float(v) for _, v in schedule]
        if self.counts[:1] != [0] or self.counts != sorted(set(self.counts)):
            raise ValueError(f"a schedule must start at 0 and its counts must rise, got {schedule}")

    def step(self, count: int, /) -> float:
        """Return the value of the last point reached."""
        return self.values[int(np.searchsorted(self.counts, count, side="right")) - 1]


class InterpScheduler(StepScheduler):
    """Linear interpolation between points, and the last value after them.

    Args:
        schedule: see :class:`StepScheduler`.

    Raises:
        ValueError: see :class:`StepScheduler`.
    """

    def step(self, count: int, /) -> float:
        """Return the value interpolated at ``count``."""
        return float(np.interp(count, self.counts, self.values))


def make_scheduler(
    constant: float, schedule: Sequence[tuple[int, float]] | None, kind: ScheduleKind
) -> Scheduler:
    """Return a scheduler; without points it is constant.

    Raises:
        ValueError: ``kind`` is unknown, or a value is negative or not finite.
    """
    kinds = {"step": StepScheduler, "interp": InterpScheduler}
    if kind not in kinds:
        raise ValueError(f"a schedule's kind must be 'interp' or 'step', got {kind!r}")
    values = [constant] if schedule is None else [value for _, value in schedule]
    if not all(0.0 <= value < math.inf for value in values):
        raise ValueError(f"a schedule's values must be finite and at least 0, got {values}")
    return ConstantScheduler(constant) if schedule is None else kinds[kind](schedule)


class EntropyScheduler:
    """The weight of the entropy over env steps.

    Args:
        coeff: the weight without a schedule.
        schedule: points (env steps, weight) or ``None``.
        kind: see :data:`rlox_rl8.data.ScheduleKind`.
    """

    def __init__(
        self,
        coeff: float,
        /,
        *,
        schedule: Sequence[tuple[int, float]] | None = None,
        kind: ScheduleKind = "step",
    ) -> None:
        self.scheduler = make_scheduler(coeff, schedule, kind)
        self.coeff = self.scheduler.step(0)

    def step(self, count: int, /) -> float:
        """Set and return the weight at ``count`` env steps."""
        self.coeff = self.scheduler.step(count)
        return self.coeff


class LRScheduler:
    """Writes the learning rate into an optimiser's groups over env steps.

    Args:
        optimizer: its groups are written, unless there is no schedule.
        schedule: points (env steps, learning rate) or ``None``.
        kind: see :data:`rlox_rl8.data.ScheduleKind`.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        /,
        *,
        schedule: Sequence[tuple[int, float]] | None = None,
        kind: ScheduleKind = "step",
    ) -> None:
        self.optimizer = optimizer
        self.scheduled = schedule is not None
        self.scheduler = make_scheduler(float(optimizer.param_groups[0]["lr"]), schedule, kind)
        self.step(0)

    @property
    def coeff(self) -> float:
        """The learning rate of the first group."""
        return float(self.optimizer.param_groups[0]["lr"])

    def step(self, count: int, /) -> float:
        """Write and return the learning rate at ``count`` env steps."""
        if self.scheduled:
            for group in self.optimizer.param_groups:
                group["lr"] = self.scheduler.step(count)
        return self.coeff
