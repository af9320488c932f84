"""The distributions of this repository and their dependencies, read from the pyproject files."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]

EXAMPLES = ("examples/plugins/rlox-reinforce", "examples/plugins/rlox-soft-q")

CRATES = {
    "rust": r"rlox-native/(crates|Cargo)",
    "transport": r"rlox-distributed/(rust|tests/\w+\.rs|Cargo)",
    "candle": "rlox-candle/",
}
"""Nox sessions by the paths of the crates that they check."""


@cache
def project(folder: Path) -> dict[str, Any]:
    """Return the table ``project`` of the folder's ``pyproject.toml``."""
    table: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def group(name: str, root: Path = ROOT) -> list[str]:
    """Return the third parties' requirements of a dependency group of the root."""
    table = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["dependency-groups"][name]
    texts = [text for text in table if isinstance(text, str) and not text.startswith("rlox")]
    return texts + [
        text
        for each in table
        if isinstance(each, dict)
        for text in group(each["include-group"], root)
    ]


def split(requirement: str) -> tuple[str, tuple[str, ...]]:
    """Return a requirement's normalised name and its extras.

    >>> split("Imageio[ffmpeg]>=2.31")
    ('imageio', ('ffmpeg',))
    """
    found = re.match(r"([\w.-]+)\s*(?:\[([^]]*)\])?", requirement)
    assert found is not None, f"a requirement begins with a name, got {requirement!r}"
    extras = tuple(re.sub(r"\s", "", found[2] or "").split(",")) if found[2] else ()
    return re.sub(r"[-_.]+", "-", found[1]).lower(), extras


def distributions(root: Path = ROOT) -> list[str]:
    """Return the folders of the distributions, ``rlox-core`` and others."""
    return sorted(path.parent.name for path in root.glob("rlox-*/pyproject.toml"))


def packages(distribution: str, root: Path = ROOT) -> list[Path]:
    """Return the folders of a distribution's import packages."""
    folders = (root / distribution / source for source in ("src", "python"))
    return sorted(path.parent for folder in folders for path in folder.glob("*/__init__.py"))


def installed_by(extra: str, root: Path = ROOT) -> list[str]:
    """Return the distributions of the tree that ``rlox-core[extra]`` installs."""
    extras = project(root / "rlox-core")["optional-dependencies"]
    names, waiting = {"rlox-core"}, [extra]
    for each in waiting:
        for name, more in map(split, extras[each]):
            names.add(name)
            waiting += more if name == "rlox-core" else ()
    return [name for name in distributions(root) if name in names]


def dependencies(distribution: str, root: Path = ROOT) -> set[str]:
    """Return the distributions of the tree that one needs, itself too.

    Extras do not count: those of rlox-core name the families, which need it in turn.
    """
    wanted = {split(text)[0] for text in project(root / distribution).get("dependencies", [])}
    siblings = wanted & set(distributions(root)) - {distribution}
    return {distribution}.union(*(dependencies(name, root) for name in siblings))


def third_parties(names: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return what some distributions declare of others' distributions, extras included."""
    found: dict[str, None] = {}
    for name in names:
        table = project(root / name)
        extras = table.get("optional-dependencies", {}).values()
        wanted = sum(extras, table.get("dependencies", []))
        ours = set(distributions(root))
        found |= dict.fromkeys(text for text in wanted if split(text)[0] not in ours)
    return list(found)


def affected(paths: Iterable[str], root: Path = ROOT) -> dict[str, list[str]]:
    """Return the nox sessions that changed files call for, each with what to test.

    Lint, types, architecture and core are always run. A distribution is tested if its files or
    those of a dependency changed; the crates, documentation and tests across distributions only
    if their own files changed.

    Args:
        paths: of the changed files, relative to the root.
        root: of the repository.
    """
    changed = sorted(set(paths))
    # what builds and tests everything; such a change may break anything
    if {"noxfile.py", "pyproject.toml", "uv.lock"} & set(changed):
        everything = ("lint", "types", "architecture", "core", "families", "integration")
        return {name: [] for name in everything}
    touched = {path.split("/")[0] for path in changed}
    tests = [
        f"{name}/tests"
        for name in distributions(root)
        if dependencies(name, root) & touched and name in installed_by("all", root)
    ]
    sessions: dict[str, list[str]] = {"lint": [], "types": [], "architecture": [], "core": []}
    if tests:
        sessions["families"] = tests
    across = [path for path in changed if re.fullmatch(r"tests/test_\w+\.py", path)]
    across = [path for path in across if (root / path).is_file()]
    if "_template" in touched:
        across = sorted({*across, "tests/test_template.py"})
    if "rlox-native" in touched:
        sessions["integration"] = []
    elif across:
        sessions["integration"] = across
    for session, crates in CRATES.items():
        if any(re.match(crates, path) for path in changed):
            sessions[session] = []
    pages = [path for path in changed if path.endswith(".md") and (root / path).is_file()]
    if "docs" in touched:
        pages.append("tests/test_sphinx.py")
    if {"examples", "rlox-core"} & touched:
        pages += [f"{folder}/tests" for folder in EXAMPLES]
    if pages:
        sessions["docs"] = pages
    return sessions
