"""Schedules: values that depend on the number of steps.

The x axis is in the training's unit: env steps, or gradient steps of an algorithm for language
models.

A schedule field of a config takes a number (constant), a :class:`Linear`, a :class:`Piecewise`, or
the text ``"linear(start, end)"`` / ``"linear(start, end, until)"``. Schedules that need code are
callables ``steps -> value`` passed to the algorithm as ``schedules={"learning_rate": f}``.
"""

from __future__ import annotations

import itertools
import math
import numbers
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from rlox.errors import ConfigError, suggest


class _Schedule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        """Validate ``values``.

        Raises:
            ConfigError: an option is unknown or wrong; the text names all of them.
        """
        try:
            super().__init__(**values)
        except ValidationError as error:
            expected = "; ".join(map(_describe, error.errors()))
            raise ConfigError(f"{type(self).__name__}: expected {expected}") from None


class Linear(_Schedule):
    """A straight line from ``start`` at 0 to ``end`` at ``until`` steps, then constant."""

    kind: Literal["linear"] = "linear"
    start: float
    end: float
    until: int | None = Field(
        None, gt=0, description="steps at which end is reached; None is the end of training"
    )

    @field_validator("start", "end", "until", mode="before")
    @classmethod
    def _refuse_bool(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("to be a number, not a truth value")
        return value

    def __call__(self, steps: int, total_steps: int) -> float:
        """Return the value after ``steps`` of a training of ``total_steps``."""
        fraction = min(steps / max(self.until or total_steps, 1), 1.0)
        return self.start + fraction * (self.end - self.start)

    def __str__(self) -> str:
        until = "" if self.until is None else f", {self.until}"
        return f"linear({self.start}, {self.end}{until})"


class Piecewise(_Schedule):
    """Values at given steps, held until the next point or interpolated linearly."""

    kind: Literal["piecewise"] = "piecewise"
    points: tuple[tuple[int, float], ...] = Field(
        min_length=1, description="(steps, value) pairs, the first at 0, increasing"
    )
    interpolate: bool = False

    @model_validator(mode="after")
    def _check_points(self) -> Piecewise:
        steps = [step for step, _ in self.points]
        if steps[0] != 0 or any(a >= b for a, b in itertools.pairwise(steps)):
            raise ValueError("steps that start at 0 and increase")
        return self

    def __call__(self, steps: int, total_steps: int) -> float:
        """Return the value after ``steps``; ``total_steps`` is ignored."""
        before = max(i for i, (step, _) in enumerate(self.points) if step <= steps)
        step, value = self.points[before]
        if not self.interpolate or before + 1 == len(self.points):
            return value
        next_step, next_value = self.points[before + 1]
        return value + (next_value - value) * (steps - step) / (next_step - step)


_KINDS: dict[str, type[_Schedule]] = {"linear": Linear, "piecewise": Piecewise}

_LINEAR = re.compile(r"linear\(([^,()]+),([^,()]+)(?:,([^,()]+))?\)", re.IGNORECASE)


_EXPECTED = (
    "a number, 'linear(start, end)', 'linear(start, end, until)' or a mapping whose kind is linear "
    "or piecewise"
)


def _parse(value: Any) -> Any:
    """Find the kind of ``value``, since pydantic would try all kinds and report each failure."""
    if isinstance(value, str):
        match = _LINEAR.fullmatch(value.strip())
        if match is None:
            try:
                value = float(value)
            except ValueError:
                raise ValueError(_EXPECTED) from None
        else:
            value = {"kind": "linear", "start": match[1], "end": match[2]}
            if match[3] is not None:
                value["until"] = match[3]
                with suppress(ValueError):  # pydantic does not read 1e6 as an integer
                    value["until"] = float(match[3])
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a finite number")
    if isinstance(value, Mapping) and str(value.get("kind")) in _KINDS:
        kind = _KINDS[str(value["kind"])]
        try:
            return kind(**value)
        except ConfigError as error:
            raise ValueError(str(error).removeprefix(f"{kind.__name__}: expected ")) from None
    if not isinstance(value, (numbers.Real, Linear, Piecewise)):
        raise ValueError(_EXPECTED)
    return value


def _describe(problem: Any) -> str:
    where = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return f"no '{where}'"
    if problem["type"] == "missing":
        return f"{where} to be given"
    expected = problem["msg"].removeprefix("Value error, ").replace("Input should be", "to be")
    return f"{where} {expected}" if where else str(expected)


ScheduleValue = Annotated[float | Linear | Piecewise, BeforeValidator(_parse)]

ScheduleOption: TypeAlias = float | str | Linear | Piecewise | Mapping[str, Any]
"""Accepted forms of a schedule; a config holds its :data:`ScheduleValue`."""


def evaluate_schedule(
    schedule: float | Linear | Piecewise | Callable[[int], float],
    steps: int,
    total_steps: int,
) -> float:
    """Return a schedule's value after ``steps`` of a training of ``total_steps``."""
    if isinstance(schedule, (Linear, Piecewise)):
        return schedule(steps, total_steps)
    if callable(schedule):
        return float(schedule(steps))
    return float(schedule)


class Schedules:
    """The scheduled fields of a config, evaluated together.

    Args:
        config: the names in its ``schedule_bounds`` that have a value are scheduled.
        overrides: callables ``steps -> value`` that win over the config's fields.

    Raises:
        ConfigError: ``overrides`` is not a mapping, has a name that is not scheduled, or a value
            that is not callable.
    """

    def __init__(
        self,
        config: BaseModel,
        overrides: Mapping[str, Callable[[int], float]] | None = None,
    ) -> None:
        if overrides is not None and not isinstance(overrides, Mapping):
            raise ConfigError(
                f"schedules must be a mapping of names to callables, got {overrides!r}"
            )
        self._bounds: Mapping[str, tuple[float, float]] = getattr(config, "schedule_bounds", {})
        names = [name for name in self._bounds if getattr(config, name, None) is not None]
        for unknown in set(overrides or ()) - set(names):
            raise ConfigError(f"no schedule is named '{unknown}'{suggest(str(unknown), names)}")
        for name, schedule in dict(overrides or {}).items():
            if not callable(schedule):
                raise ConfigError(
                    f"schedules['{name}'] must be a callable of the steps done, got {schedule!r}; "
                    f"numbers and linear or piecewise schedules are the option {name}="
                )
        self.overridden = frozenset(overrides or ())
        """Names whose values come from callables."""
        self._schedules = {name: getattr(config, name) for name in names} | dict(overrides or {})

    def require_ends(self) -> None:
        """Refuse lines that last to the end of a training, for use outside of a training.

        Raises:
            ConfigError: there is such a line.
        """
        for name, line in self._schedules.items():
            if isinstance(line, Linear) and line.until is None:
                raise ConfigError(
                    f"{name}={line} goes on to the end of a training, and none runs; give it an "
                    f"end, linear({line.start}, {line.end}, STEPS), or call "
                    "algorithm.clock.extend(STEPS)"
                )

    def at(self, steps: int, total_steps: int) -> dict[str, float]:
        """Return all values after ``steps`` of a training of ``total_steps``.

        Raises:
            ConfigError: see :meth:`value`.
        """
        return {name: self.value(name, steps, total_steps) for name in self._schedules}

    def value(self, name: str, steps: int, total_steps: int) -> float:
        """Return the value of ``name`` after ``steps`` of a training of ``total_steps``.

        Raises:
            ConfigError: a callable's value is not a number, or is out of the field's bounds.
        """
        schedule: Any = self._schedules[name]
        if name not in self.overridden:  # the config has checked its values
            return schedule(steps, total_steps) if callable(schedule) else float(schedule)
        if not isinstance(schedule, (Linear, Piecewise)):
            schedule = schedule(steps)
        try:
            value = evaluate_schedule(schedule, steps, total_steps)
        except (TypeError, ValueError):
            raise ConfigError(
                f"schedules['{name}'] must return a number, got {schedule!r} after {steps} steps"
            ) from None
        low, high = self._bounds.get(name, (-math.inf, math.inf))
        if not low <= value <= high:
            raise ConfigError(
                f"schedules['{name}'] must return values in [{low}, {high}], got {value} after "
                f"{steps} steps"
            )
        return value
