"""Supervision: which workers began again, why, and when that is enough."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass

from rlox.errors import WorkerLostError

__all__ = ["Supervisor", "WorkerEvent"]


@dataclass(frozen=True)
class WorkerEvent:
    """What happened to a worker."""

    seconds: float
    """Unix time."""
    worker: str
    what: str
    """In words, with the reason."""


class Supervisor:
    """Decides whether lost workers begin again, and keeps a log.

    Args:
        max_restarts: of each worker.
    """

    def __init__(self, max_restarts: int) -> None:
        self._max_restarts = max_restarts
        self._restarts: Counter[str] = Counter()
        self.events: list[WorkerEvent] = []
        """All that happened."""

    @property
    def restarts(self) -> int:
        """Of all workers so far."""
        return self._restarts.total()

    def lost(self, worker: str, error: WorkerLostError) -> int:
        """Note that a worker was lost, and return which of its restarts comes next.

        Args:
            worker: its name.
            error: how it was lost.

        Raises:
            WorkerLostError: it has had all its restarts; the text says how it ended.
        """
        before = self._restarts[worker]
        if before >= self._max_restarts:
            self._note(worker, f"given up: {error}")
            more = f" after {before} restarts" if before else ""
            raise WorkerLostError(f"{error}{more}") from error
        self._restarts[worker] += 1
        self._note(worker, f"begins again: {error}")
        return before + 1

    def _note(self, worker: str, what: str) -> None:
        self.events.append(WorkerEvent(time.time(), worker, what))
        logging.getLogger("rlox").warning("%s %s", worker, what)
