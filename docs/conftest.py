"""Runs every ``python`` block of the documentation and of the READMEs.

The blocks of one page share a namespace and a temporary working directory.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser


def enter_folder(namespace: dict[str, Any]) -> None:
    """Work in an empty folder while a page runs."""
    namespace["_folder"] = folder = tempfile.TemporaryDirectory()
    namespace["_back"] = Path.cwd()
    os.chdir(folder.name)


def leave_folder(namespace: dict[str, Any]) -> None:
    """Go back, and delete what the page wrote."""
    os.chdir(namespace["_back"])
    namespace["_folder"].cleanup()


class Snippets:
    """A pytest plugin; unlike a conftest's hooks, a plugin's reach beyond the conftest's folder."""

    pytest_collect_file = staticmethod(
        Sybil(
            parsers=[PythonCodeBlockParser()],
            path=str(Path(__file__).parents[1]),
            patterns=["*.md", "docs/*.md", "docs/**/*.md", "rlox-*/*.md", "examples/**/*.md"],
            excludes=["docs/_build/**", "docs/reference/generated/**"],
            setup=enter_folder,
            teardown=leave_folder,
        ).pytest()
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin."""
    config.pluginmanager.register(Snippets(), "documentation-snippets")
