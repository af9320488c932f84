"""House rules for prose: first lines of modules, and words to avoid."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]

MODULES = sorted(path for path in ROOT.glob("rlox-*/src/**/*.py") if "_template" not in path.parts)

LONG = 12
"""Words of a module's first line."""

BANNED = re.compile(r"(?<!\")\b(tells?|told|telling|likewise|anew)\b(?!\()", re.IGNORECASE)
"""Raise, report, reject, detect, distinguish, return; again. A quoted word is no use of it."""

HISTORY = ("CHANGELOG.md", "benchmarks/results/", "scores/", "tests/test_english.py")
"""Records of the past, which keep their words, and this list."""


def tracked() -> list[str]:
    """Return the paths of the files that git tracks and the rules are for."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.pyi", "*.rs", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file() and not name.startswith(HISTORY)]


def first_line_fault(path: Path) -> str | None:
    """Return what is wrong with the first line of a module's docstring, or ``None``."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if not docstring:
        return "has no docstring"
    line = docstring.splitlines()[0]
    if line.startswith("What"):
        return f"begins with What: {line}"
    if len(line.split()) > LONG:
        return f"has more than {LONG} words: {line}"
    return None


def banned_words(name: str) -> list[str]:
    """Return the lines of a file with words to avoid, each with its number."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return [f"{name}:{i}: {line.strip()}" for i, line in enumerate(lines, 1) if BANNED.search(line)]


def test_modules_begin_with_a_short_noun_phrase() -> None:
    """At most twelve words, which a stranger would search for."""
    faults = {str(path.relative_to(ROOT)): first_line_fault(path) for path in MODULES}
    assert not {name: fault for name, fault in faults.items() if fault is not None}


def test_prose_uses_the_fields_words() -> None:
    """Vague verbs hide what is raised, reported, detected or returned."""
    found = [line for name in tracked() for line in banned_words(name)]
    assert not found, "\n".join(found)
