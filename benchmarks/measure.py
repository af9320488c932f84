"""Shared by the benchmarks: what ``rlox bench`` measures with, and results by name and commit."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlox import measure
from rlox.measure import interleave, ratio_summary, summary

__all__ = ["interleave", "machine", "ratio_summary", "summary", "write"]

RESULTS = Path(__file__).parent / "results"


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """Return what a result was measured on, and of which commit."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {**measure.machine(packages), "commit": commit}


def write(name: str, result: Mapping[str, Any]) -> Path:
    """Write a result to ``benchmarks/results/<name>.json``."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return path
