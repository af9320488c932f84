"""The clock counts in one unit, whichever the algorithm's is."""

from __future__ import annotations

import pytest
from rlox.training.progress import Clock, StepUnit


@pytest.mark.parametrize("unit", ["env_steps", "gradient_steps"])
def test_steps_target_and_remaining_are_in_the_unit(unit: StepUnit) -> None:
    """The other counter plays no part."""
    clock = Clock(unit, env_steps=30, gradient_steps=7)
    done = {"env_steps": 30, "gradient_steps": 7}[unit]
    clock.extend(5)
    assert (clock.steps, clock.target, clock.remaining) == (done, done + 5, 5)
    setattr(clock, unit, done + 8)
    assert clock.remaining == 0
    assert clock.unit_text == unit.replace("_", " ")


@pytest.mark.parametrize("unit", ["env_steps", "gradient_steps"])
def test_state_is_the_counters_and_the_target(unit: StepUnit) -> None:
    """The unit is the class's to say, not the checkpoint's."""
    clock = Clock(unit, 1, 2, 3)
    clock.extend(4)
    restored = Clock(unit)
    restored.load_state_dict(clock.state_dict())
    assert restored == clock
