"""Speed measurements on shared machines: interleaved runs, medians and ratios."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["interleave", "machine", "ratio_summary", "summary"]

KeyT = TypeVar("KeyT")


def interleave(
    contenders: Mapping[KeyT, Callable[[], Any]], rounds: int
) -> dict[KeyT, list[float]]:
    """Run all contenders in turn, ``rounds`` times; return each one's seconds per run.

    What else the machine does then slows all of them alike.
    """
    seconds: dict[KeyT, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            started = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def summary(values: Iterable[float]) -> dict[str, float]:
    """Return median, minimum and maximum."""
    found = [float(value) for value in values]
    return {"median": statistics.median(found), "min": min(found), "max": max(found)}


def ratio_summary(values: Iterable[float], baseline: Iterable[float]) -> dict[str, float]:
    """Return the summary of the ratios of each round, whose two runs shared the machine's mood."""
    return summary([value / base for value, base in zip(values, baseline, strict=True)])


def machine(packages: Iterable[str]) -> dict[str, Any]:
    """Return what a result is measured on: processor, load, Python and the packages' versions."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in packages},
        "date": time.strftime("%Y-%m-%d"),
    }


def _cpu() -> str:
    """Return the processor's name and its family and model, as clouds hide the name's end."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    cpu = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if not {"model name", "cpu family", "model"} <= cpu.keys():
        return cpu.get("model name", platform.processor())
    return f"{cpu['model name']}, family {cpu['cpu family']}, model {cpu['model']}"
