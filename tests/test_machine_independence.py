"""Tests of the tests: none depends on how fast the machine is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(ROOT.glob("rlox-*/tests/**/*.py")) + sorted((ROOT / "tests").glob("*.py"))
LEAST_SECONDS = 60


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_waits_are_long(path: Path) -> None:
    """A wait for a process, a thread or a lock is a guard against waiting for ever, no measure."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    waits = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and _waits(each)]
    given = [value for wait in waits for value in _seconds(wait)]
    assert [seconds for seconds in given if seconds < LEAST_SECONDS] == []


def _waits(call: ast.Call) -> bool:
    """Return whether a call waits for another process or thread."""
    names = {"communicate", "join", "wait"}
    return isinstance(call.func, ast.Attribute) and call.func.attr in names


def _seconds(call: ast.Call) -> list[float]:
    """Return the numbers of seconds that a call names."""
    values = [*call.args, *(each.value for each in call.keywords if each.arg == "timeout")]
    numbers = [each.value for each in values if isinstance(each, ast.Constant)]
    return [float(value) for value in numbers if isinstance(value, int | float)]


def test_property_tests_have_no_deadline() -> None:
    """The folder's conftest loads the profile without one, for every test that Hypothesis runs."""
    folders = {
        next(each for each in (path, *path.parents) if each.name == "tests")
        for path in FILES
        if re.search(r"^from hypothesis import", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    without = [
        str(folder.relative_to(ROOT))
        for folder in sorted(folders)
        if not (folder / "conftest.py").is_file()
        or 'load_profile("any-speed")' not in (folder / "conftest.py").read_text(encoding="utf-8")
    ]
    assert without == []
