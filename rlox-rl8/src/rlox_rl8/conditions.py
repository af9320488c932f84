"""Conditions on statistics that stop a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Condition = Callable[[Mapping[str, Any]], bool]
"""A function of one step's statistics that returns whether to stop."""


class And:
    """Conjunction of conditions; each is called at every step."""

    def __init__(self, conditions: Sequence[Condition], /) -> None:
        self.conditions = conditions

    def __call__(self, stats: Mapping[str, Any], /) -> bool:
        """Return whether to stop."""
        return all([condition(stats) for condition in self.conditions])  # noqa: C419  # each counts


class HitsLowerBound:
    """The statistic ``key`` is at most ``lower_bound``."""

    def __init__(self, key: str, lower_bound: float, /) -> None:
        self.key, self.lower_bound = key, lower_bound

    def __call__(self, stats: Mapping[str, Any], /) -> bool:
        """Return whether to stop."""
        return bool(stats[self.key] <= self.lower_bound)


class HitsUpperBound:
    """The statistic ``key`` is at least ``upper_bound``."""

    def __init__(self, key: str, upper_bound: float, /) -> None:
        self.key, self.upper_bound = key, upper_bound

    def __call__(self, stats: Mapping[str, Any], /) -> bool:
        """Return whether to stop."""
        return bool(stats[self.key] >= self.upper_bound)


class Plateaus:
    """The statistic ``key`` changes by at most ``rtol`` of itself, ``patience`` steps in a row."""

    def __init__(self, key: str, /, *, patience: int = 5, rtol: float = 1e-3) -> None:
        self.key, self.patience, self.rtol = key, patience, rtol
        self.losses = 0
        self.old: float | None = None

    def __call__(self, stats: Mapping[str, Any], /) -> bool:
        """Return whether to stop."""
        new, old = float(stats[self.key]), self.old
        near = old is not None and abs(new - old) <= self.rtol * abs(old)
        self.losses = self.losses + 1 if near else 0
        self.old = new
        return self.losses >= self.patience


class StopsDecreasing:
    """The statistic ``key`` has not fallen below its least value for ``patience`` steps."""

    sign = 1.0

    def __init__(self, key: str, /, *, patience: int = 5) -> None:
        self.key, self.patience = key, patience
        self.losses = 0
        self.best = float("inf")

    def __call__(self, stats: Mapping[str, Any], /) -> bool:
        """Return whether to stop."""
        new = self.sign * float(stats[self.key])
        self.losses = self.losses + 1 if new >= self.best else 0
        self.best = min(self.best, new)
        return self.losses >= self.patience


class StopsIncreasing(StopsDecreasing):
    """The statistic ``key`` has not risen above its greatest value for ``patience`` steps."""

    sign = -1.0
