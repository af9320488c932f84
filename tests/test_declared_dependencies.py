"""Imports against the declared dependencies: a distribution needs nothing but what it declares.

A package of an extra, or another distribution of ours, may be missing. So it is imported inside a
function, under a guard, or in a module that neither the package nor its plugin loads by itself.
"""

from __future__ import annotations

import ast
import importlib.metadata
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import repository

ROOT = Path(__file__).parents[1]
ALIASES = {"PIL": "pillow", "mlflow": "mlflow-skinny", "yaml": "pyyaml"}
"""Import packages whose names are not their distributions'; installed ones are found anyway."""
PROVIDERS = importlib.metadata.packages_distributions()


class Import(NamedTuple):
    """One import statement's package, and when it is carried out."""

    line: int
    package: str
    modules: tuple[str, ...]
    """What the statement may load: the module itself, and its names if they are modules."""
    may_fail: bool
    """Whether the module can be imported without it: in a function, or under a guard."""


class Declared(NamedTuple):
    """The distributions that a distribution declares."""

    always: frozenset[str]
    extras: frozenset[str]


def declared(distribution, seen=frozenset()):
    """Return what a distribution declares, with what its siblings declare in turn."""
    table = repository.project(ROOT / distribution)
    optional = table.get("optional-dependencies", {})

    def expand(texts):
        for text in texts:
            name, extras = repository.split(text)
            yield name
            # what needs this one in turn, as an extra of core that names a family, brings nothing
            if (
                name in repository.distributions()
                and name not in seen
                and distribution not in repository.dependencies(name)
            ):
                yield from declared(name, seen | {distribution}).always
                theirs = repository.project(ROOT / name).get("optional-dependencies", {})
                yield from expand(text for extra in extras for text in theirs[extra])

    always = frozenset(expand(table.get("dependencies", [])))
    extras = frozenset(expand(text for texts in optional.values() for text in texts))
    return Declared(always, extras - always)


def imports(path):
    """Yield the imports of a file, wherever they stand in it."""

    def walk(node, may_fail):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name.split(".")[0], (alias.name,), may_fail)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = tuple(f"{node.module}.{alias.name}" for alias in node.names)
            package = node.module.split(".")[0]
            yield Import(node.lineno, package, (node.module, *names), may_fail)
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        caught = ast.dump(
            ast.Tuple([each.type for each in getattr(node, "handlers", ()) if each.type])
        )
        guarded = "ImportError" in caught or "ModuleNotFoundError" in caught
        guarded |= isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, may_fail or function or guarded)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), may_fail=False)


def modules(packages):
    """Return the files of all modules below some packages, by the modules' names."""
    found = {}
    for package in packages:
        for path in package.rglob("*.py"):
            parts = path.relative_to(package.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def loaded(roots, files):
    """Return the modules that importing some of them loads at once, parents included."""
    found = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in files or name in found:
            continue
        found.add(name)
        waiting += [name.rpartition(".")[0]]
        waiting += [m for each in imports(files[name]) if not each.may_fail for m in each.modules]
    return found


def undeclared(distribution):
    """Return what a distribution imports, or imports at once, without declaring it."""
    table = repository.project(ROOT / distribution)
    always, extras = declared(distribution)
    siblings = set(repository.distributions()) - {distribution}
    packages = repository.packages(distribution)
    own = {package.name for package in packages}
    providers = {path.name: name for name in siblings for path in repository.packages(name)}
    files = modules(packages)
    scripts = [target.partition(":")[0] for target in table.get("scripts", {}).values()]
    plugins = [name for group in table.get("entry-points", {}).values() for name in group.values()]
    alone = loaded([*own, *scripts], files)
    # a plugin is loaded by core, so core is there
    core = declared("rlox-core")
    by_core = loaded(plugins, files) - alone
    wrong = []
    for name, path in sorted(files.items()):
        for each in imports(path):
            known = sys.stdlib_module_names | own | {"_typeshed", "__future__"}
            if each.package in known:
                continue
            names = {each.package.lower().replace("_", "-"), ALIASES.get(each.package, "")}
            names |= {repository.split(text)[0] for text in PROVIDERS.get(each.package, ())}
            names |= {providers.get(each.package, "")}
            if names & always or (name in by_core and names & {"rlox-core", *core.always}):
                continue
            # what only core calls may use all that core may
            optional = names & (extras | siblings | core.always | core.extras)
            if optional and (each.may_fail or name not in alone | by_core):
                continue
            problem = "before it is needed" if optional else "which is not declared"
            wrong.append(f"{path.relative_to(ROOT)}:{each.line} imports {each.package}, {problem}")
    return wrong


@pytest.mark.parametrize("distribution", repository.distributions())
def test_imports_nothing_but_what_it_declares(distribution):
    """Every import is Python's, the distribution's own, or of a declared dependency or extra."""
    assert repository.packages(distribution), "no import package was found to check"
    assert not undeclared(distribution)
