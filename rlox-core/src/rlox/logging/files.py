"""Log files: opening and continuing them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from rlox.errors import LoggerError
from rlox.files import open_regular

__all__ = ["keep_lines", "open_for_appending"]


def open_for_appending(log_dir: str | Path, name: str) -> IO[Any]:
    """Open the file ``name`` in ``log_dir``; the folder is made if missing.

    Raises:
        LoggerError: a folder is in its place.
        OSError: it cannot be opened, or is a link or no regular file.
    """
    folder = Path(log_dir)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return open_regular(folder / name, "a")
    except IsADirectoryError:
        raise LoggerError(f"'{folder / name}' must be a file, not a folder; move it away") from None


def keep_lines(path: Path, wanted: Callable[[str], bool]) -> None:
    """Cut a file before its first line that is not wanted, or that a crash left unfinished.

    Raises:
        LoggerError: a line before that is damaged; the file is as it was.
    """
    with open_regular(path, "r+b") as file:
        kept = 0
        for number, line in enumerate(file, 1):
            try:
                if not (line.endswith(b"\n") and wanted(line.decode("utf-8"))):
                    break
            except (LookupError, RecursionError, TypeError, ValueError) as error:
                raise LoggerError(
                    f"'{path}' is damaged in line {number}: {error}; move it away, and the run "
                    "goes on with a new one"
                ) from None
            kept += len(line)
        file.truncate(kept)
