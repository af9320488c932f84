"""Checks before a release: versions in step, and licences of the crates.

    python .ci/release.py versions [TAG]
    python .ci/release.py licences [FILE]

The first fails if a distribution, a pin of a sibling, ``rlox.__version__`` or the changelog has
another version than rlox-core, or than the tag; the second if a crate that is linked into a wheel
has a licence that is not on the list, and writes the table of all to a file.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import repository

ROOT = repository.ROOT

WORKSPACES = ("rlox-native", "rlox-candle", "rlox-distributed")
"""Folders of Rust workspaces that wheels are built from."""

ALLOWED = frozenset(
    {
        "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause",
        "BSL-1.0", "CC0-1.0", "ISC", "MIT", "MIT-0", "Unicode-3.0", "Unlicense", "Zlib",
    }
)  # fmt: skip
"""Licences under which code may be part of our wheels, which are Apache 2.0."""


def wrong_versions(tag: str | None = None, root: Path = ROOT) -> list[str]:
    """Return what has another version than rlox-core."""
    version = repository.project(root / "rlox-core")["version"]
    wrong = []
    if tag is not None and tag.removeprefix("v") != version:
        wrong.append(f"the tag {tag} is not v{version}")
    for folder in repository.distributions(root):
        table = repository.project(root / folder)
        if table["version"] != version:
            wrong.append(f"{table['name']} has version {table['version']}, not {version}")
        extras = table.get("optional-dependencies", {}).values()
        for requirement in sum(extras, table.get("dependencies", [])):
            name, _ = repository.split(requirement)
            if name in repository.distributions(root) and f"=={version}" not in requirement:
                wrong.append(f"{table['name']} needs {requirement}, not =={version}")
    init = (root / "rlox-core/src/rlox/__init__.py").read_text("utf-8")
    if f'__version__ = "{version}"' not in init:
        wrong.append(f"rlox.__version__ is not {version}")
    if not re.search(
        rf"^## .*{re.escape(version)}", (root / "CHANGELOG.md").read_text("utf-8"), re.M
    ):
        wrong.append(f"CHANGELOG.md has no section of {version}")
    return wrong


def crates(workspace: Path) -> dict[str, dict[str, Any]]:
    """Return the crates that a workspace's libraries link, by name and version.

    Those for tests and for building alone are left out.
    """
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    done = subprocess.run(  # noqa: S603  # cargo, with nothing of a user's
        command, cwd=workspace, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    waiting, seen = list(found["workspace_members"]), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        waiting += [
            each["pkg"]
            for each in nodes[name]["deps"]
            if any(kind["kind"] is None for kind in each["dep_kinds"])
        ]
    members = set(found["workspace_members"])
    return {
        f"{packages[name]['name']} {packages[name]['version']}": packages[name]
        for name in sorted(seen - members, key=lambda name: packages[name]["name"])
    }


def permits(expression: str | None) -> bool:
    """Return whether a licence's SPDX expression lets us pass the code on.

    >>> permits("MIT OR GPL-3.0-only"), permits("MIT AND GPL-3.0-only"), permits("MIT/Apache-2.0")
    (True, False, True)
    >>> permits("(MIT OR GPL-3.0-only) AND Unicode-3.0"), permits(None)
    (True, False)
    """
    if not expression:
        return False
    text = expression.replace("/", " OR ").strip()
    for word, combined in ((" OR ", any), (" AND ", all)):
        parts = _outermost(text, word)
        if len(parts) > 1:
            return combined(map(permits, parts))
    if text.startswith("("):
        return permits(text[1:-1])
    return text in ALLOWED


def _outermost(text: str, word: str) -> list[str]:
    """Split a text at the words that are in no brackets."""
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and text.startswith(word, at):
            parts.append(text[begin:at])
            begin = at + len(word)
    return [*parts, text[begin:]]


def licences(workspaces: Iterable[str] = WORKSPACES, root: Path = ROOT) -> dict[str, str | None]:
    """Return the licence of every crate that is part of a wheel of some workspaces."""
    found: dict[str, str | None] = {}
    for name in workspaces:
        found |= {crate: package["license"] for crate, package in crates(root / name).items()}
    return dict(sorted(found.items()))


def main(arguments: list[str]) -> int:
    """Run one of the checks, print what is wrong, and return the exit status."""
    if arguments[:1] == ["versions"]:
        wrong = wrong_versions(*arguments[1:2])
    elif arguments[:1] == ["licences"]:
        found = licences()
        wrong = [f"{crate}: {text}" for crate, text in found.items() if not permits(text)]
        if arguments[1:]:
            rows = [f"| {crate} | {text} |" for crate, text in found.items()]
            table = "\n".join(["| crate | licence |", "| --- | --- |", *rows])
            Path(arguments[1]).write_text(f"{table}\n", "utf-8")
    else:
        wrong = [__doc__ or ""]
    print("\n".join(wrong), file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
