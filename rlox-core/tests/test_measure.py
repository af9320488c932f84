"""Tests of :mod:`rlox.analysis.measure`."""

from __future__ import annotations

import pytest
from rlox.analysis.measure import interleave, machine, ratio_summary, summary


def test_contenders_take_turns() -> None:
    """Each round runs every contender once, in their order."""
    calls: list[str] = []
    contenders = {name: lambda name=name: calls.append(name) for name in "ab"}
    seconds = interleave(contenders, 3)
    assert calls == ["a", "b"] * 3
    assert {name: len(runs) for name, runs in seconds.items()} == {"a": 3, "b": 3}
    assert all(run >= 0 for runs in seconds.values() for run in runs)


def test_summary_is_median_and_range() -> None:
    """An outlier moves the range alone."""
    assert summary([3.0, 1.0, 900.0]) == {"median": 3.0, "min": 1.0, "max": 900.0}


def test_ratios_are_of_the_same_round() -> None:
    """A round in which the machine was slow is slow for both."""
    assert ratio_summary([10.0, 2.0, 30.0], [5.0, 1.0, 10.0]) == {
        "median": 2.0, "min": 2.0, "max": 3.0,
    }  # fmt: skip
    with pytest.raises(ValueError, match="shorter"):
        ratio_summary([1.0, 2.0], [1.0])


def test_machine_reports_versions() -> None:
    """Results are of no use without what they were measured on."""
    found = machine(["numpy"])
    assert set(found) == {"cpu", "cores", "load_before", "python", "versions", "date"}
    assert set(found["versions"]) == {"numpy"}
