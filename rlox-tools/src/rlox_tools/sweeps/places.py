"""Runs of sweeps with a limit on concurrency: in threads or processes here, or elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import TextIO, cast

from rlox import registry
from rlox.cli.places import Job, Place, RunningJob
from rlox.cli.runs.callbacks import HANG_UP, Interruption, ending_signals
from rlox.errors import RloxError
from rlox.files import open_regular

POLL_SECONDS = 0.05


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def open_place(text: str | None, here: Place) -> Iterator[Place]:
    """Yield the place that a text names and close it at the end.

    Args:
        text: ``"name"`` or ``"name:address"``; ``None`` names the next argument.
        here: this machine.

    Raises:
        UnknownNameError: no such place is registered.
        RloxError: it cannot be reached.
    """
    name, _, address = (text or "").partition(":")
    found = None if text is None else registry.get_registry().get("rlox_places", name)
    place = here if found is None else cast("Place", found.build(address or None))
    try:
        yield place
    finally:
        place.close()


@contextmanager
def handling_signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Within the block, call ``handle`` for every signal that ends a training.

    A hang-up after another signal is ignored.
    """
    came = False

    def handler(number: int, _frame: FrameType | None) -> None:
        nonlocal came
        if not (came and number == HANG_UP):
            came = True
            handle(number)

    previous = {number: signal.signal(number, handler) for number in ending_signals()}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def run_jobs(
    jobs: Sequence[Job],
    place: Place,
    at_once: int,
    on_start: Callable[[Job], None],
    on_end: Callable[[Job, int], None],
) -> int | None:
    """Run all jobs and return the signal that interrupted them, if one did.

    Every SIGINT, SIGTERM and SIGHUP is passed on to the running jobs, and no further job starts: a
    job ends as it would in a terminal of its own.

    Args:
        jobs: jobs in the order of their start.
        place: where they run; each may use its share of this machine's cores.
        at_once: maximum number of running jobs.
        on_start: called before a job starts.
        on_end: called with its exit code; negative: the signal that killed it.
    """
    waiting, running = list(jobs), dict[Job, RunningJob]()
    signals: list[int] = []

    def pass_on(number: int) -> None:
        signals.append(number)
        for each in running.values():
            each.send_signal(number)

    try:
        with handling_signals(pass_on):
            while running or (waiting and not signals):
                while waiting and not signals and len(running) < at_once:
                    on_start(waiting[0])
                    job = waiting.pop(0)
                    running[job] = place.start(job, max(1, usable_cores() // at_once))
                    if signals:  # between the lines above
                        running[job].send_signal(signals[-1])
                time.sleep(POLL_SECONDS)
                for job, each in list(running.items()):
                    if (code := each.poll()) is not None:
                        del running[job]
                        on_end(job, code)
    finally:
        for each in running.values():
            each.kill()
            each.wait()
    return signals[-1] if signals else None


class Processes:
    """This machine, a process for each job; a :class:`rlox.cli.places.Place`.

    The processes have sessions of their own, so that a terminal's Ctrl-C reaches them once.

    Args:
        reason: why threads of one process do not suffice.
    """

    def __init__(self, reason: str) -> None:
        self.description, self.slots = f"in processes: {reason}", usable_cores()

    def start(self, job: Job, threads: int, /) -> subprocess.Popen[bytes]:
        """Start a job with at most ``threads`` threads, unless ``RLOX_NUM_THREADS`` is set."""
        with open_regular(job.output, "ab") as output:
            return subprocess.Popen(  # noqa: S603  # our own command line
                [sys.executable, "-m", "rlox", *job.arguments],
                env={"RLOX_NUM_THREADS": str(threads), **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def close(self) -> None:
        """Do nothing: no process is left."""


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
        """Do nothing: only abandoned threads are still running."""


class ThreadedJob:
    """A job in a thread; a :class:`rlox.cli.places.RunningJob`.

    The first signal ends it after its current iteration, where it saves itself. In its final
    evaluation, and with the second signal, it is abandoned: Python cannot end a thread.
    """

    def __init__(self, job: Job, train: Train) -> None:
        self._interruption, self._signals = Interruption(catch=False), list[int]()
        self._future = ThreadPoolExecutor(1).submit(_run, job, train, self._interruption)

    def send_signal(self, sig: int, /) -> None:
        """Ask the training to end."""
        self._signals.append(sig)
        self._interruption.signal = sig

    def poll(self) -> int | None:
        """Return the exit code once it has ended or is abandoned."""
        again = sum(number != HANG_UP for number in self._signals) > 1
        if not self._future.done() and self._signals and (again or self._interruption.learnt):
            return 128 + self._signals[-1]
        return self._future.result() if self._future.done() else None

    def kill(self) -> None:
        """Ask it to end after its current iteration; Python has no quicker way."""
        self.send_signal(HANG_UP)

    def wait(self) -> int:
        """Return the exit code once it has ended."""
        return self._future.result()


def _run(job: Job, train: Train, interruption: Interruption) -> int:
    """Train, and write errors into the output; return an exit code of the command line."""
    with open_regular(job.output, "a") as log:
        try:
            return train(job, interruption, log)
        except (RloxError, OSError) as error:
            print(f"error: {error}", file=log)
            return 2
        except Exception:  # one training's bug must not end the others
            traceback.print_exc(file=log)
            return 1
