"""Runs of sweeps in threads of this process."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TextIO

from rlox.cli.places import Job
from rlox.cli.runs.callbacks import HANG_UP, Interruption
from rlox.errors import RloxError
from rlox.files import open_regular

from rlox_tools.sweeps.processes import usable_cores

__all__ = ["Threads"]

Train = Callable[[Job, Interruption, TextIO], int]


class Threads:
    """This process, a thread for each job; a :class:`rlox.cli.places.Place`.

    Args:
        train: trains until a job is done or interrupted, prints into the file, and returns the exit
            code.
    """

    description = "in threads"

    def __init__(self, train: Train) -> None:
        self.slots = usable_cores()
        self._train = train

    def start(self, job: Job, _threads: int, /) -> ThreadedJob:
        """Start a job; all share the threads of Rust's kernels."""
        return ThreadedJob(job, self._train)

    def close(self) -> None:
        """Do nothing: only threads that were abandoned are under way."""


class ThreadedJob:
    """A job in a thread; a :class:`rlox.cli.places.RunningJob`.

    The first signal ends it at its present iteration, where it saves itself. In its evaluation at
    the end, and with the second signal, it is abandoned: Python cannot end a thread.
    """

    def __init__(self, job: Job, train: Train) -> None:
        self._interruption, self._signals = Interruption(catch=False), list[int]()
        self._future = ThreadPoolExecutor(1).submit(_run, job, train, self._interruption)

    def send_signal(self, sig: int, /) -> None:
        """Have the training end."""
        self._signals.append(sig)
        self._interruption.signal = sig

    def poll(self) -> int | None:
        """Return the exit code once it has ended or is abandoned."""
        again = sum(number != HANG_UP for number in self._signals) > 1
        if not self._future.done() and self._signals and (again or self._interruption.learnt):
            return 128 + self._signals[-1]
        return self._future.result() if self._future.done() else None

    def kill(self) -> None:
        """Have it end at its present iteration, as there is no quicker way."""
        self.send_signal(HANG_UP)

    def wait(self) -> int:
        """Return the exit code once it has ended."""
        return self._future.result()


def _run(job: Job, train: Train, interruption: Interruption) -> int:
    """Train, and write what goes wrong into the output; the exit codes are the command line's."""
    with open_regular(job.output, "a") as log:
        try:
            return train(job, interruption, log)
        except (RloxError, OSError) as error:
            print(f"error: {error}", file=log)
            return 2
        except Exception:  # one training's bug is not the others'
            traceback.print_exc(file=log)
            return 1
