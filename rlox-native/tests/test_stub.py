"""The stub's docstrings against those of the NumPy reference, their only source."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(
    not (ROOT.parent / "rlox-core").exists(), reason="the reference lies in another distribution"
)
def test_the_stub_is_what_its_script_writes():
    """``python stub.py`` rewrites docstrings that differ."""
    command = [sys.executable, str(ROOT / "stub.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
