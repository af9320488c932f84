"""Progress bar for training."""

from __future__ import annotations

import math
from typing import Any

from rlox.callbacks.base import Callback

__all__ = ["ProgressCallback"]


class ProgressCallback(Callback):
    """A progress bar: steps, steps per second, mean return, time left.

    The steps are env steps, or gradient steps if no env is stepped.
    """

    def __init__(self) -> None:
        self._progress: Any = None

    def on_training_start(self, **kwargs: Any) -> None:
        """Open the bar."""
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

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
        self._task = self._progress.add_task(
            kwargs["algo"].name,
            total=clock.target,
            completed=clock.steps,
            speed=0.0,
            mean_reward="-",
        )
        self._progress.start()

    def on_iteration_end(self, **kwargs: Any) -> None:
        """Move the bar."""
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
