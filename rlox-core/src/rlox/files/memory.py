"""Sizes of files and buffers, compared with the memory that is available.

The system promises more memory than it has and ends the process when the promises are called in,
so that what is too large must be refused before it is reserved. The numbers are lower bounds: what
is refused cannot work, and what is not may still turn out too large.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlox.errors import MemoryLimitError

try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None  # type: ignore[assignment]

CGROUPS = Path("/sys/fs/cgroup")

ALWAYS_THERE = 1 << 24
"""Bytes that are not worth the time to ask for them."""


def text_of_bytes(count: int) -> str:
    """Return a number of bytes as people read it, ``"1.5 GiB"``."""
    for unit, size in (("TiB", 40), ("GiB", 30), ("MiB", 20)):
        if count >= 1 << size:
            return f"{count / (1 << size):,.1f} {unit}"
    return f"{count:,} bytes"


def available_bytes() -> int | None:
    """Return how many bytes this process can take; ``None`` on systems that do not say.

    It is the least of what the machine, its swap included, the containers around the process and
    the limits of its address space leave.
    """
    found = [each for each in (*_of_machine(), *_of_containers(), *_of_process()) if each >= 0]
    return min(found, default=None)


def require_memory_for(name: str, value: Any, n_bytes: int, remedy: str) -> None:
    """Refuse what asks for more memory than there is.

    Args:
        name: what asks for it.
        value: how much of it; ``None`` leaves it out of the text.
        n_bytes: what that takes at least.
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
    """Yield what each control group around this process leaves; files' caches are free again."""
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
    """Return the numbers in lines that begin with some words."""
    lines = (line.split() for line in _text(path).splitlines())
    return {line[0]: int(line[1]) for line in lines if line and line[0] in names}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
