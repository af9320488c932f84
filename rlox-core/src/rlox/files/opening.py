"""Opening of regular files, and folders without links.

A folder from a stranger may hold links to files of its reader, which must not be written through,
and named pipes, whose opening waits for ever. What rlox writes in Python is opened here or in
:mod:`rlox.files.atomic`.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO, overload

from rlox.errors import ConfigError

TextMode = Literal["r", "w", "a"]
ByteMode = Literal["rb", "wb", "ab", "r+b"]

FLAGS: dict[str, int] = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY | os.O_CREAT,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "r+": os.O_RDWR,
}

LARGEST_TEXT = 2**26
"""Most bytes of a file that is read whole as text: 64 MiB."""


@overload
def open_regular(path: str | Path, mode: TextMode = "r") -> TextIO: ...


@overload
def open_regular(path: str | Path, mode: ByteMode) -> BinaryIO: ...


def open_regular(path: str | Path, mode: TextMode | ByteMode = "r") -> Any:
    """Open a regular file; text is UTF-8 with its line ends as they are.

    Args:
        path: a link is followed to read and refused to write.
        mode: as of :func:`open`; ``w`` empties the file only once it is known to be a regular one.

    Raises:
        OSError: it cannot be opened, is a link, or no regular file; a named pipe is not waited for.
    """
    kind = mode.replace("b", "")
    flags = FLAGS[kind] | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if kind != "r":
        if os.path.islink(path):  # where the flag is missing, and for the text of the error
            raise OSError(errno.ELOOP, "is a link, which is not written through", str(path))
        flags |= getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        found = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(found):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        if kind == "w":
            os.ftruncate(descriptor, 0)
        if "b" in mode:
            return open(descriptor, mode)
        return open(descriptor, mode, encoding="utf-8", newline="")
    except BaseException:
        os.close(descriptor)
        raise


def read_text(path: str | Path) -> str:
    """Return the text of a regular file, of which there are at most :data:`LARGEST_TEXT` bytes.

    Raises:
        OSError: it cannot be opened, is no regular file, or is larger.
        UnicodeDecodeError: it is no UTF-8.
    """
    with open_regular(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_TEXT:
            text = f"has {size:,} bytes, and at most {LARGEST_TEXT:,} are read as text"
            raise OSError(errno.EFBIG, text, str(path))
        return file.read(LARGEST_TEXT).decode("utf-8")


def require_plain_folder(folder: Path) -> None:
    """Check that a folder holds regular files and folders only, however deep.

    Args:
        folder: may itself be a link, for its path is its user's; if it is missing, it is plain.

    Raises:
        ConfigError: it holds a link, a named pipe, a socket or a device.
    """
    folders = [folder]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except FileNotFoundError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
            elif not entry.is_file(follow_symlinks=False):
                kind = "a link" if entry.is_symlink() else "no regular file"
                raise ConfigError(
                    f"'{entry.path}' is {kind}, and runs are written to folders of regular files "
                    "only; replace it by a copy of what it leads to, or remove it"
                )


def require_working_directory() -> None:
    """Check that the working directory exists; MKL, which torch loads, ends processes without one.

    Raises:
        ConfigError: it was deleted, or cannot be read any more.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise ConfigError(
            f"the working directory is gone ({error.strerror}); change to one that exists"
        ) from None
