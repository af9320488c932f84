"""Helpers for benchmarks on a GPU: its name, and a clock that waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def gpu_of(device: str | torch.device) -> dict[str, str]:
    """Return a torch device's GPU for the ``machine`` of a result; empty without one."""
    if torch.device(device).type != "cuda":
        return {}
    return {"gpu": torch.cuda.get_device_name(device), "cuda": str(torch.version.cuda)}


def clock_of(device: str) -> Callable[[], float]:
    """Return a clock of processor time, or on a GPU of wall-clock time that waits for the GPU."""
    if torch.device(device).type != "cuda":
        return time.process_time

    def now() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return now
