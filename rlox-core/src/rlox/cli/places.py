"""Places where the runs of sweeps are executed, other than this machine.

A plugin registers one with the hook ``rlox_places``; ``--on NAME`` or ``--on NAME:ADDRESS`` asks
for it. Order, limits, signals and records stay rlox's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Job:
    """One call of the command line."""

    name: str
    arguments: tuple[str, ...]
    """The arguments after ``rlox``."""
    output: Path
    """File for its standard output and errors, appended to."""
    again: Callable[[], tuple[str, ...]] | None = None
    """Returns the arguments for continuing a job that was lost with its machine; ``None``: it
    cannot continue."""


class RunningJob(Protocol):
    """A job that was started; a ``subprocess.Popen`` is one."""

    def poll(self) -> int | None:
        """Return its exit code, minus the signal that killed it, or ``None`` while it runs."""

    def send_signal(self, sig: int, /) -> None:
        """Pass a signal on; called from a signal handler too."""

    def kill(self) -> None:
        """End it at once."""

    def wait(self) -> int:
        """Return its exit code once it has ended."""


class Place(Protocol):
    """A place that runs jobs."""

    description: str
    """Description of the place, appended to the text about the runs."""
    slots: int
    """Number of jobs that it can run at once."""

    def start(self, job: Job, threads: int, /) -> RunningJob:
        """Start a job.

        Args:
            job: its command line; its output is appended to its file.
            threads: number of threads that it may use on this machine.

        Raises:
            RloxError: it cannot be started.
        """

    def close(self) -> None:
        """Free the place's resources; no job is running any more."""
