"""Console output of the command line."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

NOTICES = logging.getLogger("rlox.notice")
"""Logger of notices: not problems, but useful facts such as a Ray cluster's address."""

PIPE_WIDTH = 240
"""Columns when stdout is not a terminal: rows stay on one line, for grep."""


def show_notices() -> None:
    """Print notices on stderr, once for all calls."""
    if not NOTICES.handlers:
        NOTICES.addHandler(logging.StreamHandler())
        NOTICES.setLevel(logging.INFO)


def console(file: TextIO | None = None) -> Console:
    """Return a console on a file; ``None`` is the current stdout."""
    from rich.console import Console  # slow, and a line needs none

    width = None if (file or sys.stdout).isatty() else PIPE_WIDTH
    return Console(file=file, highlight=False, width=width)


def print_progress(text: str, file: TextIO | None = None) -> None:
    """Print a line on a file and flush it; ``None`` is stdout."""
    print(text, file=file, flush=True)


def print_pairs(pairs: Mapping[str, str], file: TextIO | None = None, *, width: int = 0) -> None:
    """Print names, padded to ``width`` columns, and values; long values are not cut."""
    from rich.markup import escape

    out, width = console(file), max(width, *map(len, pairs))
    for name, value in pairs.items():
        out.print(f"[dim]{name:<{width}}[/]  {escape(value)}", soft_wrap=True)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    whole: Sequence[str],
) -> None:
    """Print a table.

    Args:
        columns: headings.
        rows: one text per column each.
        whole: columns whose texts are never broken into lines.
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
    for column in columns:
        name = column in ("name", "option")
        table.add_column(column, style="cyan" if name else "", no_wrap=column in whole)
    for row in rows:
        table.add_row(*map(escape, row))
    console().print(table)


def print_warning(message: str, file: TextIO | None = None) -> None:
    """Print a warning as one line on a file; ``None`` is stderr."""
    print(f"warning: {message}", file=file or sys.stderr)


def duration_text(seconds: float) -> str:
    """Return a time as text: ``4.2 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


class PipeSafeStdout:
    """A stdout that discards text after a write error, such as a broken pipe.

    Such errors come after ``| head``, a closed terminal or a full disk. The output of a training
    is in its folder too. :func:`stdout_is_broken` tells whether such an error occurred.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None
        """The first write error, if there was one."""

    def write(self, text: str) -> int:
        """Write text, or discard it."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush the buffer, or discard it."""
        self._try(self._stream.flush)

    def _try(self, send: Callable[[], object]) -> None:
        try:
            send()
        except OSError as error:
            self.error = error
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())  # the rest of the buffer goes there too
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def stdout_is_broken() -> bool:
    """Return whether a write to stdout has failed."""
    return getattr(sys.stdout, "error", None) is not None
