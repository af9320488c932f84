"""Run folders named on the command line, and their labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rlox_tools.analysis.learning_curves import find_runs
from rlox_tools.sweeps.folder import set_of

__all__ = ["RUNS", "labelled_runs"]

RUNS = "Run folders, sweeps, or folders of them"
"""What :func:`labelled_runs` takes, for the help."""


def labelled_runs(arguments: Sequence[str]) -> Iterator[tuple[str | None, Path]]:
    """Yield the run folders that the arguments name, each with its label or that of its options.

    Raises:
        RunError: a folder holds no run.
    """
    for argument in arguments:
        label, equals, folder = argument.partition("=")
        labelled = bool(equals and label) and not Path(argument).exists()
        for run in find_runs(Path(folder if labelled else argument)):
            yield (label if labelled else set_of(run)), run
