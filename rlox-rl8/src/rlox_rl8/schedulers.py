"""Schedules of coefficients over env steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from rlox_rl8.data import ScheduleKind

Points = Sequence[tuple[int, float]]
"""Points (count, value); their counts rise from 0."""


class Scheduler(Protocol):
    """A value over a count."""

    def step(self, count: int, /) -> float:
        """Return the value at ``count``."""


class StepScheduler:
    """The value of the last point at or before the count.

    Raises:
        ValueError: the points are empty, unordered or do not begin at 0.
    """

    def __init__(self, schedule: Points, /) -> None:
        self.counts, self.values = [int(c) for c, _ in schedule], [float(v) for _, v in schedule]
        if self.counts[:1] != [0] or self.counts != sorted(set(self.counts)):
            raise ValueError(f"a schedule must start at 0 and its counts must rise, got {schedule}")

    def step(self, count: int, /) -> float:
        """Return the value at ``count``."""
        return self.values[int(np.searchsorted(self.counts, count, side="right")) - 1]


class ConstantScheduler(StepScheduler):
    """A constant value."""

    def __init__(self, value: float, /) -> None:
        super().__init__([(0, value)])


class InterpScheduler(StepScheduler):
    """Linear interpolation between points, and the last value after them."""

    def step(self, count: int, /) -> float:
        """Return the value at ``count``."""
        return float(np.interp(count, self.counts, self.values))


def make_scheduler(constant: float, schedule: Points | None, kind: ScheduleKind) -> Scheduler:
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
    """The weight of the entropy over env steps; without a schedule it is constant."""

    def __init__(
        self, coeff: float, /, *, schedule: Points | None = None, kind: ScheduleKind = "step"
    ) -> None:
        self.scheduler = make_scheduler(coeff, schedule, kind)
        self.coeff = self.scheduler.step(0)

    def step(self, count: int, /) -> float:
        """Set and return the weight at ``count`` env steps."""
        self.coeff = self.scheduler.step(count)
        return self.coeff


class LRScheduler:
    """Writes a scheduled learning rate into an optimiser's groups over env steps."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        /,
        *,
        schedule: Points | None = None,
        kind: ScheduleKind = "step",
    ) -> None:
        self.optimizer = optimizer
        self.scheduled = schedule is not None
        self.scheduler = make_scheduler(self.coeff, schedule, kind)
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
