"""Runs every ``python`` block of the documentation and of the READMEs.

The blocks of one page share a namespace and a temporary working directory. One page is followed
word for word: blocks with a caption are files, and those of a console are commands and what they
print, in an environment of its own that finds this one's packages.
"""

import doctest
import os
import re
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from sybil import Document, Example, Region, Sybil
from sybil.parsers.myst import CodeBlockParser, PythonCodeBlockParser
from sybil.parsers.myst.lexers import DirectiveLexer

FOLLOWED = "docs/tutorials/your-own-value-algorithm.md"
FOLDER = str(Path(__file__).parents[1])


def enter_folder(namespace: dict[str, Any]) -> None:
    """Work in an empty folder while a page runs."""
    namespace["_folder"] = folder = tempfile.TemporaryDirectory()
    namespace["_back"] = Path.cwd()
    os.chdir(folder.name)


def leave_folder(namespace: dict[str, Any]) -> None:
    """Go back, and delete what the page wrote."""
    os.chdir(namespace["_back"])
    namespace["_folder"].cleanup()


def enter_environment(namespace: dict[str, Any]) -> None:
    """Work in an empty folder, with an environment that finds the packages of this one."""
    enter_folder(namespace)
    subprocess.run(
        ["uv", "venv", "--quiet", "--python", sys.executable, ".venv"],  # noqa: S607
        check=True,
    )
    (found,) = Path().glob(".venv/lib/*/site-packages")
    packages = site.getsitepackages()[0]
    (found / "beside.pth").write_text(f"import site; site.addsitedir({packages!r})\n", "utf-8")
    commands = {"pip": "uv pip --quiet $* --no-deps", "rlox": "python -m rlox $*"}
    for name, command in commands.items():
        script = Path(".venv/bin", name)
        script.write_text(f"#!/bin/sh\nexec {command}\n", encoding="utf-8")
        script.chmod(0o755)
    environment = Path(".venv").resolve()
    path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
    namespace["_env"] = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(environment)}


def write(example: Example) -> None:
    """Write the file that a block's caption names."""
    name, source = example.parsed
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")


def run(example: Example) -> str | None:
    """Run the commands of a block; what they print must be what follows, ``...`` is anything."""
    same = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for command, shown in re.findall(r"^\$ (.+)\n((?:[^$\n].*\n)*)", example.parsed, re.MULTILINE):
        done = subprocess.run(  # noqa: S603  # what the page says
            ["bash", "-c", command],  # noqa: S607
            check=False, env=example.namespace["_env"], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if done.returncode or not doctest.OutputChecker().check_output(shown, done.stdout, same):
            return f"{command} ended with {done.returncode} and printed\n{done.stdout}"
    return None


def files(document: Document) -> Iterable[Region]:
    """Yield the blocks that are files."""
    for found in DirectiveLexer("code-block")(document):
        path = found.lexemes["options"]["caption"].strip("`")
        source = found.lexemes["source"].lstrip("\n")
        yield Region(found.start, found.end, (path, source), write)


class Snippets:
    """A pytest plugin; unlike a conftest's hooks, a plugin's reach beyond the conftest's folder."""

    pytest_collect_file = staticmethod(
        (
            Sybil(
                parsers=[PythonCodeBlockParser()],
                path=FOLDER,
                patterns=["*.md", "docs/*.md", "docs/**/*.md", "rlox-*/*.md", "examples/**/*.md"],
                excludes=["docs/_build/**", "docs/reference/generated/**", FOLLOWED],
                setup=enter_folder,
                teardown=leave_folder,
            )
            + Sybil(
                parsers=[files, CodeBlockParser("console", run)],
                path=FOLDER,
                patterns=[FOLLOWED],
                setup=enter_environment,
                teardown=leave_folder,
            )
        ).pytest()
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin."""
    config.pluginmanager.register(Snippets(), "documentation-snippets")
