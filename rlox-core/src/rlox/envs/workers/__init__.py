"""Supervised worker processes: their start, calls with deadlines, restarts, shared arrays."""

from rlox.envs.workers.arena import Arena
from rlox.envs.workers.process import MakeWorker, Worker, WorkerProcess, spare_file
from rlox.envs.workers.supervisor import Supervisor, WorkerEvent

__all__ = [
    "Arena",
    "MakeWorker",
    "Supervisor",
    "Worker",
    "WorkerEvent",
    "WorkerProcess",
    "spare_file",
]
