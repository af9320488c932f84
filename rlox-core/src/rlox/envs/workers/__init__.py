"""Supervised worker processes: their start, calls with deadlines, restarts, shared arrays."""

from rlox.envs.workers.arena import Arena
from rlox.envs.workers.process import (
    MakeWorker,
    Supervisor,
    Worker,
    WorkerEvent,
    WorkerProcess,
    spare_file,
)

__all__ = [
    "Arena",
    "MakeWorker",
    "Supervisor",
    "Worker",
    "WorkerEvent",
    "WorkerProcess",
    "spare_file",
]
