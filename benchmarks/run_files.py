"""Trainings in processes of their own, with points as lines of JSON in a file.

This imports nothing of rlox, because interpreters of other libraries use it too.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Point = dict[str, Any]


def append(file: Path, point: Point) -> None:
    """Append a point to a file."""
    with file.open("a") as lines:
        lines.write(json.dumps(point) + "\n")


def points_of(
    file: Path,
    is_over: Callable[[list[Point]], bool],
    command: Sequence[str | Path],
    **options: Any,
) -> list[Point]:
    """Return the points of a file; unless they are complete, a process writes them first.

    Args:
        file: of the points.
        is_over: whether points are those of a complete training.
        command: of the process; it has one thread for each library's arithmetic.
        options: of :func:`subprocess.run`; ``env`` is added to this process's.
    """

    def read() -> list[Point]:
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    if not is_over(read()):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("env", {})}
        subprocess.run(command, check=True, env=environment, **options)
    return read()
