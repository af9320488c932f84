"""Files that loggers write to."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

__all__ = ["open_for_appending"]


def open_for_appending(log_dir: str | Path, name: str) -> IO[Any]:
    """Open the file ``name`` in ``log_dir``; the folder is made if missing."""
    folder = Path(log_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / name).open("a", encoding="utf-8", newline="")
