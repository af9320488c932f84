"""Callbacks of ``rlox train``: signals, and progress without a terminal."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

import numpy as np

from rlox.callbacks import Callback, TimingCallback
from rlox.cli.output import print_progress, stdout_is_broken
from rlox.ranks import RANKS
from rlox.training.hooks import Progress
from rlox.training.parts_of_ranks import leave_to_rank_0

if TYPE_CHECKING:
    from rlox.algorithm import Algorithm

HANG_UP = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has none
"""Sent when the terminal, or the reader of the output, is gone. It may come with another signal,
for example when Ctrl-C ends ``| tee`` too, so that the two count as one."""


def ending_signals() -> list[int]:
    """Return SIGINT, SIGTERM and, unless ``nohup`` has it ignored, :data:`HANG_UP`."""
    hang_up = [] if signal.getsignal(HANG_UP) is signal.SIG_IGN else [int(HANG_UP)]
    return list(dict.fromkeys([int(signal.SIGINT), int(signal.SIGTERM), *hang_up]))


PASSING_ON = 2.0
"""Seconds in which a signal may reach a rank twice: from the terminal and ``torchrun``."""


class Interruption(Callback):
    """Turns SIGINT, SIGTERM and SIGHUP into an end of training with a consistent state.

    A context manager: while it is entered, the first signal during training stops it at the end of
    the current iteration, where a checkpoint resumes exactly; a second one, and any outside
    training, raises ``KeyboardInterrupt``. A hang-up does not count as a second signal, nor does
    the signal after it, nor, in ranks, a signal within :data:`PASSING_ON`.
    A stdout without a reader counts as a hang-up too.

    Args:
        catch: whether to catch the signals, which only the main thread can; if not, other code
            sets :attr:`signal`.
    """

    def __init__(self, *, catch: bool = True) -> None:
        self.signal: int | None = None
        """The received signal, if any."""
        self.learnt = False
        """Whether the training is finished and saved, and only its evaluation is left."""
        self._caught = ending_signals() if catch else []
        self._training = False
        self._passed_on = 0.0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        for number in self._caught:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None and (number == HANG_UP or time.monotonic() < self._passed_on):
            return
        self._passed_on = time.monotonic() + PASSING_ON if RANKS else 0.0
        first, self.signal = self.signal in (None, HANG_UP), number
        if not (first and self._training):
            raise KeyboardInterrupt

    def agree(self) -> None:
        """Share a signal at any rank with all; each rank calls this after learning.

        Raises:
            WorkerLostError: another rank has gone, or does not answer.
        """
        for ranks in RANKS:
            said = ranks.gather(np.array(self.signal or 0), "an interruption")
            self.signal = max(int(each.item()) for each in said) or None

    @property
    def exit_code(self) -> int:
        """The code that shells report for a process ended by the signal."""
        return 128 + (self.signal or signal.SIGINT)

    def on_training_start(self, **kwargs: Any) -> None:
        """Let signals wait for the end of the iteration from now on."""
        self._training = True

    def on_iteration_end(self, **kwargs: Any) -> bool:
        """Stop if a signal has been received."""
        if self.signal is None and HANG_UP in self._caught and stdout_is_broken():
            self.signal = HANG_UP
        return self.signal is None

    def on_training_end(self, **kwargs: Any) -> None:
        """Let signals interrupt at once from now on."""
        self._training = False


class LatestCheckpoint(Callback):
    """Saves the training periodically, replacing the previous checkpoint.

    It saves at the end of an iteration, where a checkpoint resumes exactly; or within an iteration
    whose end is late by another such period, or by a minute. Saving takes at most a tenth of the
    time: after a save it waits at least nine times as long as the save took.

    Args:
        path: of the checkpoint.
        seconds: time between two checkpoints.
    """

    saves_training: ClassVar[bool] = True

    def __init__(self, path: Path, seconds: float) -> None:
        self._path = path
        self._seconds = seconds
        self._due = 0.0

    def on_training_start(self, **kwargs: Any) -> None:
        """Count from now on."""
        self._due = time.monotonic() + self._seconds

    def on_pulse(self, **kwargs: Any) -> None:
        """Save if the iteration's end is late; not with several ranks, which must all save."""
        if not RANKS and time.monotonic() >= self._due + min(self._seconds, 60.0):
            self.on_iteration_end(**kwargs)

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Save if it is time."""
        began = time.monotonic()
        if began < self._due:
            return
        kwargs["algo"].save(self._path)
        ended = time.monotonic()
        self._due = ended + max(self._seconds, 9 * (ended - began))


class ProgressLines(Callback):
    """About ten lines over the training, for output that is not a terminal.

    Args:
        file: their destination; ``None`` is stdout.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._next = 0
        self._silence = 10.0
        """Seconds without a line before one is printed within an iteration; doubled each time."""

    def on_training_start(self, **kwargs: Any) -> None:
        """Measure the speed from now on."""
        self._started = self._since = time.monotonic()
        self._mean, self._before = math.nan, kwargs["step"]

    def on_pulse(self, **kwargs: Any) -> None:
        """Print a line if the last one was long ago."""
        if time.monotonic() - self._since >= self._silence:
            self._silence *= 2
            self._print(kwargs["step"], kwargs["algo"].clock)

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Print a line when another tenth is done."""
        step, clock = kwargs["step"], kwargs["algo"].clock
        self._mean = kwargs["metrics"].get("mean_reward", math.nan)
        if step >= self._next:
            self._next = (step * 10 // clock.target + 1) * clock.target / 10
            self._print(step, clock)

    def _print(self, step: int, clock: Progress) -> None:
        self._since, unit = time.monotonic(), clock.unit_text
        # as in the table at the end of the run
        speed = (step - self._before) / (self._since - self._started)
        line = f"{step:,}/{clock.target:,} {unit}, {speed:,.0f} {unit}/s"
        if clock.unit != "env_steps":
            line += "" if math.isnan(self._mean) else f", mean_reward {self._mean:.3g}"
        else:
            ended = not math.isnan(self._mean)
            line += f", return {self._mean:.1f}" if ended else ", no episode finished yet"
        print_progress(line, self._file)


def measured_phases(algorithm: Algorithm) -> dict[str, dict[str, float]]:
    """Return the seconds of each phase for the record; empty without the callback ``timing``."""
    for callback in algorithm.callbacks.callbacks:
        if isinstance(callback, TimingCallback):
            found = callback.summary()
            return {"phases": {name: round(each.seconds, 3) for name, each in found.items()}}
    return {}


def await_record() -> None:
    """Wait until rank 0 has recorded an interruption; rank 0 calls this afterwards.

    ``torchrun`` ends all ranks as soon as one ends by an interruption.

    Raises:
        WorkerLostError: another rank has gone, or does not answer.
    """
    for ranks in RANKS:
        ranks.total(0, "the record of an interruption")


def train_beside(interruption: Interruption, learn: Callable[[], Any], algorithm: Algorithm) -> int:
    """Call ``learn`` as a rank above 0, which logs nothing and saves its part; return the code."""
    with interruption:
        learn()
        interruption.agree()
        leave_to_rank_0(algorithm)  # rank 0 saves after learning
        if interruption.signal is not None:
            await_record()
    return 0 if interruption.signal is None else interruption.exit_code
