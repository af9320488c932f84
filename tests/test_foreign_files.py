"""Damaged and hostile files: a few of those that fuzzing makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("foreign_files.py")


def test_no_damaged_file_is_more_than_refused() -> None:
    """``nox -s fuzz`` tries thousands; 40 of a kind find what refuses nothing, or fails."""
    result = subprocess.run(
        [sys.executable, SCRIPT, "40", "--seed", "1"], check=False, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    rows = [line.split("|")[1:4] for line in result.stdout.splitlines() if "|" in line][2:]
    assert {name.strip() for name, *_ in rows} >= {
        "checkpoint",
        "policy",
        "config",
        "model of Stable-Baselines3",
        "run folder",
        "dataset `.npz`",
    }
    assert all(int(tried) >= 10 and int(refused) > 0 for _, tried, refused in rows)
