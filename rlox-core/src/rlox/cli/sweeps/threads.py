"""Thread pool for training runs, with a limit on concurrency."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TextIO

from rlox.cli.runs.callbacks import Interruption
from rlox.cli.runs.signals import HANG_UP, handling_signals
from rlox.cli.sweeps.processes import POLL_SECONDS
from rlox.errors import RloxError
from rlox.files import open_regular

__all__ = ["Training", "run_in_threads"]


@dataclass(frozen=True)
class Training:
    """One training in this process."""

    name: str
    train: Callable[[Interruption, TextIO], int]
    """Trains until it is done or interrupted, prints into the file, returns the exit code."""
    output: Path
    """The file, appended to."""


def run_in_threads(
    jobs: Iterable[Training],
    at_once: int,
    on_start: Callable[[Training], None],
    on_end: Callable[[Training, int], None],
    abandon: Callable[[Sequence[Training], int], NoReturn],
) -> int | None:
    """Run all trainings and return the signal that interrupted them, if one did.

    The first SIGINT, SIGTERM or SIGHUP ends each at its present iteration, where it saves itself,
    and starts no others. Evaluations at the end, and with the second signal all that is still under
    way, are abandoned: Python cannot end a thread, and would wait for it. One that fails leaves the
    others alone.

    Args:
        jobs: in the order in which they start; each is asked for when there is room for it.
        at_once: number of threads.
        on_start: called before a training starts.
        on_end: called with its exit code.
        abandon: called with those under way and the last signal; it ends the process.
    """
    waiting, more = iter(jobs), True
    running: dict[Future[int], tuple[Training, Interruption]] = {}
    signals: list[int] = []

    def pass_on(number: int) -> None:
        signals.append(number)
        for _, interruption in running.values():
            interruption.signal = number

    with handling_signals(pass_on), ThreadPoolExecutor(at_once) as pool:
        while running or (more and not signals):
            while more and not signals and len(running) < at_once:
                job, interruption = next(waiting, None), Interruption(catch=False)
                if job is None:
                    more = False
                    break
                on_start(job)
                running[pool.submit(_run, job, interruption)] = (job, interruption)
                if signals:  # between the lines above
                    interruption.signal = signals[-1]
            ended, _ = wait(running, POLL_SECONDS, FIRST_COMPLETED)
            for future in ended:
                job, _ = running.pop(future)
                on_end(job, future.result())
            again = sum(number != HANG_UP for number in signals) > 1
            learnt = all(interruption.learnt for _, interruption in running.values())
            if running and signals and (again or learnt):
                abandon([job for job, _ in running.values()], signals[-1])
    return signals[-1] if signals else None


def _run(job: Training, interruption: Interruption) -> int:
    """Train, and write what goes wrong into the output; the exit codes are the command line's."""
    with open_regular(job.output, "a") as log:
        try:
            return job.train(interruption, log)
        except (RloxError, OSError) as error:
            print(f"error: {error}", file=log)
            return 2
        except Exception:  # one training's bug is not the others'
            traceback.print_exc(file=log)
            return 1
