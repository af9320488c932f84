"""Comparison with rl8 1.0.0's figures on the same data and weights; see ``rl8_cases``."""

import json

import pytest
import rl8_cases as cases

NUMBERS = json.loads(cases.NUMBERS.read_text(encoding="utf-8"))


def near(found, expected, where):
    """Compare nested figures within 5e-5: after some updates processors differ by up to 2e-5."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key, value in expected.items():
            near(found[key], value, f"{where}, {key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for i, value in enumerate(expected):
            near(found[i], value, f"{where}, {i}")
    elif isinstance(expected, str):
        assert found == expected, where
    else:
        assert found == pytest.approx(expected, rel=5e-5, abs=5e-5), where


@pytest.mark.parametrize("name", cases.CASES)
def test_numbers_are_those_of_rl8(name):
    """Buffers, losses, weights, windows, schedules and conditions."""
    near(cases.CASES[name]("rlox.rl8"), NUMBERS[name], name)
