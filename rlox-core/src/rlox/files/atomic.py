"""Atomic files, there whole or not at all, and locked ones."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlox.files.opening import open_regular

_PART = ".{name}.{process}.{thread}.tmp"


def target_of(path: Path) -> Path:
    """Return the path, or if it is a link the file that it leads to."""
    return path.resolve() if path.is_symlink() else path


def sync_folder(folder: Path) -> None:
    """Make durable which files a folder has, and under which names.

    Windows opens no folder, and its file systems log names by themselves.
    """
    if os.name == "nt":
        return
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_atomically(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a file beside its target, sync it and rename it; folders are made as needed.

    A reader sees the old content or the new one, also while several threads or processes write.

    Args:
        path: if it is a link, the file that it leads to is written.
        data: the whole content.
        sync: make the name durable too; without, :func:`sync_folder` does so for many files.

    Raises:
        OSError: the file cannot be written, or what is there is no regular file; what is there is
            intact, and the error names it.
    """
    target = target_of(path)
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
    if sync:
        sync_folder(target.parent)


def remove_parts(folder: Path) -> None:
    """Remove what processes left in ``folder`` that were killed while they saved.

    Args:
        folder: no process may be saving into it; it need not exist.
    """
    for part in folder.glob(_PART.format(name="*", process="*", thread="*")):
        part.unlink()


if sys.platform != "win32":
    import fcntl


@contextmanager
def lock_file(path: Path) -> Iterator[bool]:
    """Hold a lock on a file that is there only meanwhile, and yield whether this process has it.

    On Windows every process has it.

    Raises:
        OSError: the file cannot be made or locked.
        ConfigError: it is a link or a named pipe.
    """
    if sys.platform == "win32":
        yield True
        return
    while True:
        with open_regular(path, "w") as file:
            try:
                # of the process, unlike flock's: env workers that outlive it do not hold it
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
                yield False
                return
            if not _is_at(path, file.fileno()):
                continue  # whoever had it has removed it since it was opened here
            try:
                yield True
            finally:
                path.unlink(missing_ok=True)
            return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
