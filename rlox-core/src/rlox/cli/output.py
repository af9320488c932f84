"""How the command line prints."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlox.cli.signals import HANG_UP

__all__ = ["console", "print_pairs", "print_progress", "print_table", "print_warning"]

PIPE_WIDTH = 240
"""Columns when stdout is no terminal: rows stay on one line, for grep."""


class PatientConsole(Console):
    """A console that prints nothing more, and ends nothing, once nobody reads stdout."""

    def on_broken_pipe(self) -> None:
        """Go on: what is printed at the end of a training is in its folder too."""
        discard_stdout()


def console(file: TextIO | None = None) -> Console:
    """Return a console on a file; none: the present stdout."""
    width = None if (file or sys.stdout).isatty() else PIPE_WIDTH
    return PatientConsole(file=file, highlight=False, width=width)


def discard_stdout() -> None:
    """Send stdout, and what of it is still in its buffer, nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_progress(text: str, file: TextIO | None = None) -> None:
    """Print a line on a file, none: stdout, at once.

    Where nobody reads stdout any more, as after ``| head`` or with the terminal closed, it is as if
    SIGHUP had come: what trains saves its state and ends.
    """
    try:
        print(text, file=file, flush=True)
    except OSError:
        if file is not None:
            raise
        discard_stdout()
        signal.raise_signal(HANG_UP)


def print_pairs(pairs: Mapping[str, str], file: TextIO | None = None) -> None:
    """Print names and values in two columns; long values are not cut."""
    out, width = console(file), max(map(len, pairs))
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
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
    for column in columns:
        name = column in ("name", "option")
        table.add_column(column, style="cyan" if name else "", no_wrap=column in whole)
    for row in rows:
        table.add_row(*map(escape, row))
    console().print(table)


def print_warning(message: str, file: TextIO | None = None) -> None:
    """Print a warning as one line on a file; none: stderr."""
    print(f"warning: {message}", file=file or sys.stderr)
