"""The commands, one module each, and their shared code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import typer

from rlox_tools.analysis import find_runs
from rlox_tools.sweeps.folder import set_of

__all__ = ["RUNS", "labelled_runs", "maker_of"]

RUNS = "Run folders, sweeps, or folders of them"
"""Help text for the arguments of :func:`labelled_runs`."""


def maker_of(command: Callable[..., None]) -> Callable[[], typer.Typer]:
    """Return a function that makes the app of one command."""

    def make() -> typer.Typer:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command()(command)
        return app

    return make


def labelled_runs(arguments: Sequence[str]) -> Iterator[tuple[str | None, Path]]:
    """Yield the named run folders, each with its given label or one from its options.

    Raises:
        RunError: a folder holds no run.
    """
    for argument in arguments:
        label, equals, folder = argument.partition("=")
        labelled = bool(equals and label) and not Path(argument).exists()
        for run in find_runs(Path(folder if labelled else argument)):
            yield (label if labelled else set_of(run)), run
