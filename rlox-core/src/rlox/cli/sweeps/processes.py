"""Process pool for commands, with a limit on concurrency."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable

from rlox.cli.runs.signals import handling_signals
from rlox.cli.sweeps.places import Job, Place, RunningJob
from rlox.files import open_regular

__all__ = ["run_in_processes", "usable_cores"]

POLL_SECONDS = 0.05


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_in_processes(
    jobs: Iterable[Job],
    at_once: int,
    on_start: Callable[[Job], None],
    on_end: Callable[[Job, int], None],
    unwanted: Callable[[Job], bool] | None = None,
    place: Place | None = None,
) -> int | None:
    """Run all jobs and return the signal that interrupted them, if one did.

    SIGINT, SIGTERM and SIGHUP are passed on to the running jobs, each as often as it comes, and
    start no others: a job ends as it would in a terminal of its own. They have sessions of their
    own, so that a terminal's Ctrl-C reaches them once. Threads of the Rust kernels are divided
    among them, unless ``RLOX_NUM_THREADS`` is set.

    Args:
        jobs: in the order in which they start; each is asked for when there is room for it.
        at_once: number of processes.
        on_start: called before a job's process starts.
        on_end: called with its exit code; negative: the signal that killed it.
        unwanted: called for the running jobs again and again; the first time that it is true, the
            job gets SIGTERM.
        place: where they run; ``None``: in processes of this machine.
    """
    waiting, more, running = iter(jobs), True, dict[Job, RunningJob]()
    start = _started if place is None else place.start
    share = max(1, usable_cores() // at_once)
    signals: list[int] = []
    stopped: set[Job] = set()

    def pass_on(number: int) -> None:
        signals.append(number)
        for process in running.values():
            process.send_signal(number)

    try:
        with handling_signals(pass_on):
            while running or (more and not signals):
                while more and not signals and len(running) < at_once:
                    job = next(waiting, None)
                    if job is None:
                        more = False
                        break
                    on_start(job)
                    running[job] = start(job, share)
                    if signals:  # between the two lines above
                        running[job].send_signal(signals[-1])
                time.sleep(POLL_SECONDS)
                for job in running.keys() - stopped if unwanted is not None else ():
                    if unwanted is not None and unwanted(job):
                        stopped.add(job)
                        running[job].send_signal(signal.SIGTERM)
                codes = [(job, process.poll()) for job, process in running.items()]
                for job, code in codes:
                    if code is not None:
                        del running[job]
                        on_end(job, code)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return signals[-1] if signals else None


def _started(job: Job, threads: int) -> subprocess.Popen[bytes]:
    with open_regular(job.output, "ab") as output:
        return subprocess.Popen(  # noqa: S603  # our own command line
            [sys.executable, "-m", "rlox", *job.arguments],
            env={"RLOX_NUM_THREADS": str(threads), **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
