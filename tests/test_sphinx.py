"""Sphinx reads the documentation and resolves its references without a warning."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILDER = os.environ.get("RLOX_DOCS_BUILDER", "dummy")
"""``html`` writes the pages."""


@pytest.mark.timeout(0)
def test_references():
    """With candle's names from its stub, as compiling it takes minutes."""
    env = {"RLOX_PLUGINS_STRICT": "1", "PYTHONPATH": str(ROOT / "rlox-candle/python")}
    command = [
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        BUILDER,
        "docs",
        f"docs/_build/{BUILDER}",
    ]
    subprocess.run([sys.executable, "-m", *command], check=True, cwd=ROOT, env=os.environ | env)
