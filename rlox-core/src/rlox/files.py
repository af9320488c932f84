"""File access: regular files only, atomic writes, and nothing larger than the memory.

An untrusted folder may hold links to its reader's files, hard links too, which must not be written
through, and named pipes, which block when opened. All files that rlox writes in Python are opened
here.

The system promises more memory than it has and kills the process once it is used, so that too large
requests must be refused before allocation. The numbers are lower bounds: a refused request cannot
work, and an accepted one may still turn out too large.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO, overload

from rlox.errors import ConfigError, MemoryLimitError

TextMode = Literal["r", "w", "a"]
ByteMode = Literal["rb", "wb", "ab", "r+b"]

FLAGS: dict[str, int] = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY | os.O_CREAT,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "r+": os.O_RDWR,
}

LARGEST_TEXT = 2**26
"""Maximum bytes of a file that is read whole as text: 64 MiB."""


@overload
def open_regular(path: str | Path, mode: TextMode = "r") -> TextIO: ...


@overload
def open_regular(path: str | Path, mode: ByteMode) -> BinaryIO: ...


def open_regular(path: str | Path, mode: TextMode | ByteMode = "r") -> Any:
    """Open a regular file; text is UTF-8 with unchanged line ends.

    Args:
        path: a link is followed for reading and refused for writing.
        mode: see :func:`open`; ``w`` empties the file only after checking that it is regular.

    Raises:
        OSError: it cannot be opened, is not a regular file, or is to be written and is a link or
            has several names; a named pipe does not block.
    """
    kind = mode.replace("b", "")
    flags = FLAGS[kind] | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if kind != "r":
        if os.path.islink(path):  # for systems without the flag, and for the error's text
            raise OSError(errno.ELOOP, "is a link, which is not written through", str(path))
        flags |= getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        if kind != "r" and found.st_nlink > 1:
            raise OSError(
                errno.EMLINK, "has another name (a hard link); put a copy in its place", str(path)
            )
        if kind == "w":
            os.ftruncate(descriptor, 0)
        if "b" in mode:
            return open(descriptor, mode)
        return open(descriptor, mode, encoding="utf-8", newline="")
    except BaseException:
        os.close(descriptor)
        raise


def read_text(path: str | Path) -> str:
    """Return the text of a regular file of at most :data:`LARGEST_TEXT` bytes.

    Raises:
        OSError: it cannot be opened, is not a regular file, or is larger.
        UnicodeDecodeError: it is not UTF-8.
    """
    with open_regular(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_TEXT:
            text = f"has {size:,} bytes, and at most {LARGEST_TEXT:,} are read as text"
            raise OSError(errno.EFBIG, text, str(path))
        return file.read(LARGEST_TEXT).decode("utf-8")


def require_plain_folder(folder: Path) -> None:
    """Check that a folder holds only regular files and folders, at any depth.

    Args:
        folder: may itself be a link, since the user chose its path; a missing one is plain.

    Raises:
        ConfigError: it holds a link, a named pipe, a socket or a device, or has a hard-linked
            file directly in it.
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
                continue
            plain = entry.is_file(follow_symlinks=False)
            # files that are replaced as a whole, such as checkpoints, may have hard links
            twice = plain and Path(entry.path).parent == folder and os.stat(entry.path).st_nlink > 1
            if not plain or twice:
                kind = "a link" if entry.is_symlink() or plain else "not a regular file"
                raise ConfigError(
                    f"'{entry.path}' is {kind}, and runs are written to folders of regular files "
                    "only; replace it by a copy of its target, or remove it"
                )


def require_working_directory() -> None:
    """Check that the working directory exists; MKL, loaded by torch, ends processes without one.

    Raises:
        ConfigError: it was deleted, or can no longer be read.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise ConfigError(
            f"the working directory is gone ({error.strerror}); change to one that exists"
        ) from None


_PART = ".{name}.{process}.{thread}.tmp"


def target_of(path: Path) -> Path:
    """Return the path, or a link's target."""
    return path.resolve() if path.is_symlink() else path


def sync_folder(folder: Path) -> None:
    """Make the names of a folder's files durable.

    Not on Windows, which cannot open folders and whose file systems log names by themselves.
    """
    if os.name == "nt":
        return
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_atomically(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a file next to its target, sync it and rename it; folders are made as needed.

    A reader sees the old or the new content, even while several threads or processes write.

    Args:
        path: if it is a link, its target is written.
        data: the whole content.
        sync: make the name durable too; otherwise call :func:`sync_folder` once for many files.

    Raises:
        OSError: the file cannot be written, or ``path`` exists and is not a regular file; it is
            intact, and the error names it.
    """
    target = target_of(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "expected a file, got a folder", str(path))
    if target.exists() and not target.is_file():
        raise FileExistsError(errno.EEXIST, "is not a regular file, and is not replaced", str(path))
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
        with suppress(OSError):  # in a folder that cannot be written
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            # a full disk's error names no file
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise
    if sync:
        sync_folder(target.parent)


def remove_parts(folder: Path) -> None:
    """Remove partial files in ``folder`` of processes that were killed while saving.

    Args:
        folder: no process may be saving into it; it need not exist.
    """
    for part in folder.glob(_PART.format(name="*", process="*", thread="*")):
        part.unlink()


if sys.platform != "win32":
    import fcntl


@contextmanager
def lock_file(path: Path) -> Iterator[bool]:
    """Hold a lock on a temporary file, and yield whether this process has it.

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
                # unlike flock's, the process's own: env workers that outlive it do not hold it
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
                yield False
                return
            if not _is_at(path, file.fileno()):
                continue  # the last holder has removed it since it was opened here
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


try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None  # type: ignore[assignment]

CGROUPS = Path("/sys/fs/cgroup")

ALWAYS_THERE = 1 << 24
"""Bytes too few to be worth a check."""


def text_of_bytes(count: int) -> str:
    """Return a number of bytes as readable text, ``"1.5 GiB"``."""
    for unit, size in (("TiB", 40), ("GiB", 30), ("MiB", 20)):
        if count >= 1 << size:
            return f"{count / (1 << size):,.1f} {unit}"
    return f"{count:,} bytes"


def available_bytes() -> int | None:
    """Return the number of bytes that this process can take; ``None`` if the system hides it.

    It is the minimum over the machine, its swap included, the containers around the process and
    the limits of its address space.
    """
    found = [each for each in (*_of_machine(), *_of_containers(), *_of_process()) if each >= 0]
    return min(found, default=None)


def require_memory_for(name: str, value: Any, n_bytes: int, remedy: str) -> None:
    """Refuse a request for more memory than there is.

    Args:
        name: of the option or thing that needs it.
        value: of the option; ``None`` leaves it out of the text.
        n_bytes: lower bound of the memory needed.
        remedy: ends the message.

    Raises:
        MemoryLimitError: there is less.
    """
    if n_bytes <= ALWAYS_THERE:
        return
    available = available_bytes()
    if available is not None and n_bytes > available:
        asked = name if value is None else f"{name} = {value}"
        raise MemoryLimitError(
            f"not enough memory for {asked}: it would take at least {text_of_bytes(n_bytes)}, and "
            f"{text_of_bytes(available)} are available; {remedy}"
        )


def _of_machine() -> Iterator[int]:
    found = _numbers(Path("/proc/meminfo"), ("MemAvailable:", "SwapFree:"))
    if "MemAvailable:" in found:
        yield 1024 * sum(found.values())
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_containers() -> Iterator[int]:
    """Yield the memory left in each control group of this process; file caches count as free."""
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, kind, path = line.split(":", 2)
        if kind == "":
            root, limit, usage = CGROUPS, "memory.max", "memory.current"
        elif kind == "memory":
            root = CGROUPS / "memory"
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        inner = root / path.lstrip("/")
        for group in (inner, *inner.parents):
            most, used = _text(group / limit).strip(), _text(group / usage).strip()
            if most.isdecimal() and used.isdecimal():
                cached = _numbers(group / "memory.stat", ("inactive_file",))
                yield max(int(most) - int(used) + sum(cached.values()), 0)
            if group == root:
                break


def _of_process() -> Iterator[int]:
    if resource is not None:
        taken = _numbers(Path("/proc/self/status"), ("VmSize:", "VmData:"))
        for kind, used in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
            most, _ = resource.getrlimit(kind)
            if most != resource.RLIM_INFINITY:
                yield max(most - 1024 * taken.get(used, 0), 0)


def _numbers(path: Path, names: tuple[str, ...]) -> dict[str, int]:
    """Return the numbers in lines that begin with given words."""
    lines = (line.split() for line in _text(path).splitlines())
    return {line[0]: int(line[1]) for line in lines if line and line[0] in names}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def pairs_as_html(title: str, pairs: Mapping[str, str]) -> str:
    """Return an HTML table of names and values with a caption; all texts are escaped."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in pairs.items()
    )
    caption = f'<caption style="text-align:left">{escape(title)}</caption>'
    return f"<table>{caption}<tbody>{rows}</tbody></table>"
