"""Docstrings of the Rust module's stub, taken from the NumPy reference.

Functions and classes with a twin in ``rlox.kernels.reference`` are documented only there. The stub
has their signature, the twin's first sentence and, below it, notes on the Rust version. ``python
stub.py`` writes this; ``python stub.py --check`` fails if the stub differs.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

HERE = Path(__file__).parent
STUB = HERE / "python/rlox_native/_native.pyi"
WIDTH = 100
QUOTES = '"""'
REFERENCE = HERE.parent / "rlox-core/src/rlox/kernels/reference"

Node: TypeAlias = ast.FunctionDef | ast.ClassDef


def definitions(body: list[ast.stmt]) -> dict[str, Node]:
    """Return the functions and classes of a body by name."""
    return {node.name: node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def reference() -> dict[str, Node]:
    """Return the public functions and all classes of the reference, by name."""
    exported = ast.parse((REFERENCE / "__init__.py").read_text(encoding="utf-8"))
    names = {
        alias.name
        for node in exported.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found: dict[str, Node] = {}
    for path in sorted(REFERENCE.rglob("*.py")):
        found |= definitions(ast.parse(path.read_text(encoding="utf-8")).body)
    bases = {name for name, node in found.items() if isinstance(node, ast.ClassDef)}
    return {name: found[name] for name in (names | bases) & set(found)}


def members(node: Node, twins: Mapping[str, Node]) -> dict[str, Node]:
    """Return the methods of a class, including those of its bases."""
    bases = getattr(node, "bases", [])
    inherited: dict[str, Node] = {}
    for base in bases:
        if isinstance(base, ast.Name) and base.id in twins:
            inherited |= members(twins[base.id], twins)
    return inherited | definitions(node.body)


def summary(node: Node) -> str | None:
    """Return the first paragraph of a docstring on one line, or ``None`` if there is none."""
    text = ast.get_docstring(node)
    return " ".join(text.partition("\n\n")[0].split()) if text else None


def documented(stub: ast.Module, twins: Mapping[str, Node]) -> Iterator[tuple[Node, str]]:
    """Yield the nodes with a docstring in the stub and in their twin, with the expected text."""
    for name, node in definitions(stub.body).items():
        twin = twins.get(name)
        if twin is None:
            continue
        _, blank, notes = (ast.get_docstring(node) or "").partition("\n\n")
        yield node, (summary(twin) or "") + blank + notes
        twin_members = members(twin, twins)
        for key, member in definitions(node.body).items():
            text = summary(twin_members[key]) if key in twin_members else None
            if text and ast.get_docstring(member):
                yield member, text


def quoted(text: str, column: int) -> list[str]:
    """Return the lines of a docstring that begins at ``column``."""
    indent = " " * column
    head, *notes = text.split("\n")
    while len(head) + column + 2 * len(QUOTES) > WIDTH:
        head = re.sub("[:,] [^:,]*$", ".", head)  # shortened to one line
    lines = [QUOTES + head, *notes, QUOTES] if notes else [QUOTES + head + QUOTES]
    return [indent + line if line else "" for line in lines]


def generated(source: str) -> str:
    """Return the stub with the expected docstrings."""
    lines = source.splitlines()
    replacements = []
    for node, text in documented(ast.parse(source), reference()):
        first = node.body[0]
        assert isinstance(first, ast.Expr)
        assert first.end_lineno is not None
        replacements.append((first.lineno - 1, first.end_lineno, quoted(text, first.col_offset)))
    for start, end, body in sorted(replacements, reverse=True):
        lines[start:end] = body
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the stub, or compare it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    check = parser.parse_args().check
    source = STUB.read_text(encoding="utf-8")
    expected = generated(source)
    if expected == source:
        return 0
    if check:
        differing = [
            f"{STUB.name}:{at}: {got!r} instead of {want!r}"
            for at, (got, want) in enumerate(
                zip(source.splitlines(), expected.splitlines(), strict=False), 1
            )
            if got != want
        ]
        print(*differing[:1], "run `python rlox-native/stub.py` to write the stub", sep="\n")
        return 1
    STUB.write_text(expected, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
