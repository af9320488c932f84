"""Progress and time of a training: a progress bar and a table of phases."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from rlox.callbacks.base import Callback, Phase


class ProgressCallback(Callback):
    """A progress bar: steps, steps per second, mean return, time left.

    The steps are env steps, or gradient steps if no env is stepped.
    """

    def __init__(self) -> None:
        self._progress: Any = None

    def on_training_start(self, **kwargs: Any) -> None:
        """Open the bar."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        clock = kwargs["algo"].clock
        unit = clock.unit_text
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn(f"{{task.completed:,.0f}}/{{task.total:,.0f}} {unit}"),
            TextColumn("{task.fields[speed]:,.0f}/s"),
            TextColumn("return {task.fields[mean_reward]}"),
            TextColumn("ETA"),
            TimeRemainingColumn(compact=True),
            expand=True,
        )
        shown = {"total": clock.target, "completed": clock.steps, "speed": 0.0, "mean_reward": "-"}
        self._task = self._progress.add_task(kwargs["algo"].name, **shown)
        self._progress.start()

    def on_pulse(self, **kwargs: Any) -> None:
        """Move the bar within an iteration."""
        self._progress.update(self._task, completed=kwargs["step"])

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Move the bar, and show the speed and the return."""
        metrics, unit = kwargs["metrics"], kwargs["algo"].clock.unit
        mean_reward = metrics.get("mean_reward", math.nan)
        self._progress.update(
            self._task,
            completed=kwargs["step"],
            speed=metrics[f"{unit}_per_second"],
            mean_reward="-" if math.isnan(mean_reward) else f"{mean_reward:.1f}",
        )

    def on_training_end(self, **kwargs: Any) -> None:
        """Close the bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


@dataclass(frozen=True)
class PhaseTime:
    """Wall time of one phase of a training."""

    seconds: float
    percent: float
    """Share of the time of all phases; 0 before the first training."""


class TimingCallback(Callback):
    """Measure the wall time of each :data:`~rlox.callbacks.Phase`, over all trainings so far.

    Args:
        verbose: print the times when a training ends.
    """

    def __init__(self, verbose: bool = True) -> None:
        self.verbose = verbose
        self._seconds: dict[Phase, float] = dict.fromkeys(get_args(Phase), 0.0)
        self._phase: Phase | None = None
        self._since = 0.0

    def summary(self) -> dict[Phase, PhaseTime]:
        """Return the time of each phase up to now."""
        self._enter(self._phase)
        total = sum(self._seconds.values())
        return {
            phase: PhaseTime(seconds, 100 * seconds / total if total else 0.0)
            for phase, seconds in self._seconds.items()
        }

    def on_phase(self, **kwargs: Any) -> None:
        """Close the previous phase and open the next."""
        self._enter(kwargs["phase"])

    def on_training_end(self, **kwargs: Any) -> None:
        """Close the last phase."""
        self._enter(None)
        if self.verbose:
            times = ", ".join(
                f"{phase} {spent.seconds:.2f} s ({spent.percent:.0f} %)"
                for phase, spent in self.summary().items()
            )
            print(f"time after {kwargs['step']} {kwargs['algo'].clock.unit_text}: {times}")

    def _enter(self, phase: Phase | None) -> None:
        now = time.perf_counter()
        if self._phase is not None:
            self._seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def state_dict(self) -> dict[str, Any]:
        """Return the seconds, so that a resumed training adds to them."""
        return {phase: spent.seconds for phase, spent in self.summary().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the seconds."""
        self._seconds = {phase: float(state[phase]) for phase in get_args(Phase)}
