"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

__all__ = ["remove_parts", "write_atomically"]

_PART = ".{name}.{process}.{thread}.tmp"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file beside its target, sync it and rename it; folders are made as needed.

    A reader sees the old content or the new one, also while several threads or processes write.

    Args:
        path: where it is a link, the file that it leads to is written.
        data: the whole content.

    Raises:
        OSError: the file cannot be written, or what is there is no regular file; what is there is
            intact, and the error names it.
    """
    target = path.resolve() if path.is_symlink() else path
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "expected a file, got a folder", str(path))
    if target.exists() and not target.is_file():
        raise FileExistsError(errno.EEXIST, "is no regular file, and is not replaced", str(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    part = _PART.format(name=target.name, process=os.getpid(), thread=threading.get_ident())
    temporary = target.with_name(part)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            # a full disk names no file
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def remove_parts(folder: Path) -> None:
    """Remove what processes left in ``folder`` that were killed while they saved.

    Args:
        folder: no process may be saving into it; it need not exist.
    """
    for part in folder.glob(_PART.format(name="*", process="*", thread="*")):
        part.unlink()
