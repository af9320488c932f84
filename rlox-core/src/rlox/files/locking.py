"""Lock files: one process at a time."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlox.files.opening import open_regular

if sys.platform != "win32":
    import fcntl

__all__ = ["lock_file"]


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
