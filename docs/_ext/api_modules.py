"""The tree of core: its floors, the code map, and the modules with an API page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from rlox.registry.families import ALGORITHMS

ROOT = Path(__file__).parents[2]

FLOORS = (
    ("errors", "kernels"),
    ("files", "ranks"),
    ("registry",),
    ("config", "seeding", "spaces"),
    ("batches", "logging", "nn"),
    ("protocols",),
    ("envs", "losses", "networks"),
    ("callbacks",),
    ("training",),
    ("deployment", "learners"),
    ("algorithm",),
    ("replay", "rollouts"),
    ("cli", "trainers"),
)
"""The packages and modules of core, lowest first; each imports from lower floors only."""

PATHS = (
    "rlox.collectors",
    "rlox.distributed",
    "rlox.gym_vec_env",
    "rlox.llm",
    "rlox.offline",
    "rlox.policies",
    "rlox.rl8",
    "rlox.testing",
)
"""Documented paths that hand on names; the pages are their homes'."""

FACADES = (
    "rlox",
    "rlox.llm",
    "rlox.offline",
    "rlox_rl8",
    "rlox.algorithms",
    *(row.facade for row in ALGORITHMS),
    *PATHS,
)
"""Modules that hand on what other modules define; ``reference/api/rlox.md`` lists their names."""

INTERNAL = (
    "cli", "commands", "figures", "naming", "plugin", "report", "sweeps", "tuning",
    "vector_env",
)  # fmt: skip
"""Modules and packages, directly below a distribution's, that are no API."""


OWN_PAGES = {
    "rlox.envs": ("evaluation", "preprocessing"),
    "rlox.kernels": ("reference",),
    "rlox.training": ("checkpoint",),
}
"""Modules of a package with a page beside the package's."""


def packages() -> dict[str, Path]:
    """Return the package of every distribution and where it lies."""
    return {
        path.parent.name: path.parent
        for pattern in ("rlox-*/src/rlox*/__init__.py", "rlox-*/python/rlox*/__init__.py")
        for path in sorted(ROOT.glob(pattern))
    }


def pages() -> dict[str, str]:
    """Return every module with a page, and the first line of its docstring.

    A package that lists its names has one page for all of it; of another, each module that
    defines public names has one.
    """
    found = {}
    for package, folder in packages().items():
        if package not in FACADES and has_names(folder / "__init__.py"):
            found[package] = _about(folder / "__init__.py")
        for path in sorted(folder.iterdir()):
            name = f"{package}.{path.stem}"
            if path.stem in INTERNAL or name in FACADES or path.stem.startswith("_"):
                continue
            found |= _pages(name, path)
    return found


def code_map() -> list[tuple[str, str, str]]:
    """Return floor, package or module, and the first line of its docstring, the highest first."""
    core = packages()["rlox"]
    rows = []
    for level, names in reversed(list(enumerate(FLOORS, start=1))):
        for name in names:
            folder = core / name
            door = folder / "__init__.py"
            path, where = core / f"{name}.py", f"`{name}.py`"
            if door.is_file():
                path, where = door, f"`{name}/`"
            rows.append((str(level), where, _about(path)))
    return rows


def _pages(name: str, path: Path) -> dict[str, str]:
    if path.suffix == ".py":
        return {name: _about(path)} if has_names(path) else {}
    door = path / "__init__.py"
    if not door.is_file():
        return {}
    found = {name: _about(door)} if has_names(door) else {}
    return found | {
        page: about
        for below in sorted(path.iterdir())
        if not found or below.stem in OWN_PAGES.get(name, ())
        for page, about in _pages(f"{name}.{below.stem}", below).items()
    }


def has_names(path: Path) -> bool:
    """Return whether a package lists its names, or a module does or defines public ones."""
    module = path.name != "__init__.py"
    return any(
        (module and isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[0] != "_")
        or (isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
    )


def _about(path: Path) -> str:
    """Return the first line of a module's docstring as a heading."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem
    line = text.splitlines()[0].rstrip(".").replace("``", "`")
    return re.sub(r":\w+:`", "`", line)
