"""Log files: opening and continuing them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from rlox.files import open_regular

__all__ = ["keep_lines", "open_for_appending"]


def open_for_appending(log_dir: str | Path, name: str) -> IO[Any]:
    """Open the file ``name`` in ``log_dir``; the folder is made if missing.

    Raises:
        OSError: it cannot be opened, or is a link or no regular file.
    """
    folder = Path(log_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return open_regular(folder / name, "a")


def keep_lines(path: Path, wanted: Callable[[str], bool]) -> None:
    """Cut a file before its first line that is not wanted, or that a crash left unfinished."""
    with open_regular(path, "r+b") as file:
        kept = 0
        for line in file:
            if not (line.endswith(b"\n") and wanted(line.decode("utf-8"))):
                break
            kept += len(line)
        file.truncate(kept)
