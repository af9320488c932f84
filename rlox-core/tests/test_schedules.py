"""Tests of :mod:`rlox.config.schedules`."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from rlox.config.schedules import Linear, Piecewise, Schedules, ScheduleValue, evaluate_schedule
from rlox.errors import ConfigError

parse = TypeAdapter(ScheduleValue).validate_python


def test_linear_reaches_its_end_at_the_end_of_training() -> None:
    """Without ``until`` the line spans the whole training, then stays."""
    line = Linear(start=1.0, end=0.0)
    assert [line(steps, 100) for steps in (0, 25, 100, 200)] == [1.0, 0.75, 0.0, 0.0]


def test_linear_until_is_in_env_steps() -> None:
    """With ``until`` the length of the training plays no part."""
    line = Linear(start=0.0, end=2.0, until=50)
    assert [line(steps, 1000) for steps in (0, 25, 50, 999)] == [0.0, 1.0, 2.0, 2.0]


def test_linear_before_any_training_is_its_start() -> None:
    """A training of 0 env steps divides by nothing."""
    assert Linear(start=3.0, end=0.0)(0, 0) == 3.0


def test_a_line_to_the_end_of_a_training_needs_one() -> None:
    """Iterations of one's own would otherwise learn at the end's rate, often 0."""
    schedules = Schedules(Rates(rate=Linear(start=1.0, end=0.0)), ["rate"])
    with pytest.raises(ConfigError) as caught:
        schedules.require_ends()
    assert str(caught.value) == (
        "rate=linear(1.0, 0.0) goes on to the end of a training, and none runs; give it an end, "
        "linear(1.0, 0.0, STEPS), or call algorithm.clock.extend(STEPS)"
    )
    Schedules(Rates(rate=Linear(start=1.0, end=0.0, until=16)), ["rate"]).require_ends()
    Schedules(Rates(), ["rate"], {"rate": lambda step: 0.5}).require_ends()


def test_piecewise_holds_until_the_next_point() -> None:
    """Without interpolation the value jumps at each point."""
    steps = Piecewise(points=((0, 1.0), (10, 0.5), (20, 0.0)))
    assert [steps(t, 0) for t in (0, 9, 10, 19, 20, 99)] == [1.0, 1.0, 0.5, 0.5, 0.0, 0.0]


def test_piecewise_interpolates_between_points() -> None:
    """With interpolation the points are joined by lines, the last one held."""
    ramp = Piecewise(points=((0, 1.0), (10, 0.0)), interpolate=True)
    assert [ramp(t, 0) for t in (0, 5, 10, 11)] == [1.0, 0.5, 0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("linear(1e-3, 0)", Linear(start=1e-3, end=0)),
        (" Linear( 1 ,0.5 , 200 ) ", Linear(start=1, end=0.5, until=200)),
        ("linear(1, 0, 1e6)", Linear(start=1, end=0, until=1_000_000)),
        ("3e-4", 3e-4),
        (1, 1.0),
        ({"kind": "linear", "start": "3e-4", "end": 0}, Linear(start=3e-4, end=0)),
        ({"kind": "piecewise", "points": [[0, 1]]}, Piecewise(points=((0, 1.0),))),
        (Linear(start=1, end=0), Linear(start=1, end=0)),
    ],
)
def test_parse(text: Any, expected: Any) -> None:
    """Text, numbers, mappings and schedules are understood."""
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("linear(1)", "a number, 'linear"),
        ("linear(1, 0, 0)", "until to be greater than 0"),
        ("linear(1, 0, 2.5)", "until to be a valid integer"),
        ("linear(nan, 0)", "start to be a finite number"),
        ("inf", "a finite number"),
        ({"kind": "cosine"}, "a number, 'linear"),
        ({"kind": "piecewise", "points": []}, "points"),
        ({"kind": "piecewise", "points": [[0, 1], [0, 2]]}, "start at 0 and increase"),
        ({"kind": "linear", "start": 1, "end": 0, "unti": 5}, "unti"),
        ([1, 2], "a number, 'linear"),
    ],
)
def test_wrong_schedule_is_refused(value: Any, message: str) -> None:
    """What is no schedule is refused with one reason."""
    with pytest.raises(ValidationError, match=message):
        parse(value)


def test_evaluate_takes_numbers_schedules_and_callables() -> None:
    """A callable gets the env steps alone."""
    assert evaluate_schedule(0.5, 10, 100) == 0.5
    assert evaluate_schedule(Linear(start=1, end=0), 10, 100) == 0.9
    assert evaluate_schedule(lambda env_steps: env_steps * 2, 10, 100) == 20.0


class Rates(BaseModel):
    """A config with a bounded schedule."""

    schedule_bounds: ClassVar[dict[str, tuple[float, float]]] = {"rate": (0.0, 1.0)}
    rate: ScheduleValue = 0.5


@pytest.mark.parametrize("value", [-1.0, 7.0, math.nan])
def test_values_of_callables_are_within_the_fields_bounds(value: float) -> None:
    """They are known where they are asked for; the error has the env step."""
    schedules = Schedules(Rates(), ["rate"], {"rate": lambda step: value if step > 5 else 1.0})
    assert schedules.at(5, 10) == {"rate": schedules.value("rate", 5, 10)} == {"rate": 1.0}
    with pytest.raises(
        ConfigError, match=r"schedules\['rate'\] .* \[0.0, 1.0\], got .* after 6 steps"
    ):
        schedules.value("rate", 6, 10)


@pytest.mark.parametrize("value", ["x", None, [1.0, 2.0]])
def test_values_of_callables_are_numbers(value: Any) -> None:
    """The error names the schedule, the value and the step."""
    schedules = Schedules(Rates(), ["rate"], {"rate": lambda step: value})
    with pytest.raises(ConfigError) as caught:
        schedules.value("rate", 6, 10)
    assert str(caught.value) == (
        f"schedules['rate'] must return a number, got {value!r} after 6 steps"
    )


@pytest.mark.parametrize("overrides", [[], "", 0])
def test_overrides_are_a_mapping(overrides: Any) -> None:
    """Empty ones of another type are refused like others."""
    with pytest.raises(ConfigError, match=r"^schedules must be a mapping of names to callables, "):
        Schedules(Rates(), ["rate"], overrides)
