"""Memory of a device, free and asked for."""

from __future__ import annotations

import os

import torch

from rlox_rl8._specs import Composite, TensorSpec
from rlox_rl8.data import MemoryStats

__all__ = ["bytes_of", "memory_stats"]


def bytes_of(spec: TensorSpec) -> int:
    """Return the bytes of one value of a spec."""
    if isinstance(spec, Composite):
        return sum(bytes_of(spec[key]) for key in spec.keys())  # noqa: SIM118
    return int(spec.shape.numel() * spec.dtype.itemsize)


def memory_stats(device: torch.device) -> MemoryStats:
    """Return free and total bytes of the device, and the percentage in use."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
    else:
        page = os.sysconf("SC_PAGE_SIZE")
        free = os.sysconf("SC_AVPHYS_PAGES") * page
        total = os.sysconf("SC_PHYS_PAGES") * page
    return {
        "memory/free": free,
        "memory/total": total,
        "memory/percent": 100 * (total - free) / total,
    }
