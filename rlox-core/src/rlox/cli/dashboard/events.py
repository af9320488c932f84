"""Server-Sent Events of the dashboard: runs and curves as they change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rlox.cli.dashboard.watching import WatchedRun, Watcher

__all__ = ["Subscription", "event"]

AT_ONCE = 25
"""Runs of one event, so that a page draws while others are on their way."""


def event(name: str, data: Any) -> bytes:
    """Return one event; JSON has no line breaks, which would end it."""
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()


class Subscription:
    """What one page knows, and the events that bring it up to date.

    Args:
        watcher: of the runs.
        metric: of the curves.
    """

    def __init__(self, watcher: Watcher, metric: str) -> None:
        self._watcher = watcher
        self._metric = metric
        self._version = 0
        self._sent: dict[int, tuple[int, int, int]] = {}
        """From each run: the log's generation, its number of evaluations, the last step."""

    @property
    def is_behind(self) -> bool:
        """Whether anything changed since :meth:`news` was called."""
        return self._version != self._watcher.version

    def news(self) -> Iterator[bytes]:
        """Yield events for all that changed since the last call."""
        watcher = self._watcher
        changed = [number for number, v in watcher.changed.items() if v > self._version]
        self._version = watcher.version
        runs = [watcher.runs[number] for number in changed if number in watcher.runs]
        if gone := [number for number in changed if number not in watcher.runs]:
            yield event("gone", gone)
        for start in range(0, len(runs), AT_ONCE):
            part = runs[start : start + AT_ONCE]
            yield event("runs", [run.summary() for run in part])
            curves = [curve for run in part if (curve := self._curve(run)) is not None]
            if curves:
                yield event("curves", {"metric": self._metric, "curves": curves})

    def _curve(self, run: WatchedRun) -> dict[str, Any] | None:
        """Return what the page lacks of a run's curve."""
        rows, _ = run.log.rows(self._metric)
        evaluated = len(run.log.evaluations) if rows is run.log.evaluations else 0
        generation, known, last = self._sent.get(run.number, (-1, 0, -1))
        # evaluations of a long log are found out of order
        whole = generation != run.log.generation or evaluated != known
        steps, values = run.points(self._metric, -1 if whole else last)
        self._sent[run.number] = run.log.generation, evaluated, steps[-1] if steps else last
        if not steps and not (whole and generation >= 0):
            return None
        return {"id": run.number, "whole": whole, "x": steps, "y": values}
