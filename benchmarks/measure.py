"""Helpers of all benchmarks: interleaved runs, ratios, processes, and results by name."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import numpy.typing as npt
from rlox.cli.commands.doctor import processor

Part = tuple[Any, str, str | Callable[[], str]]
"""An object, the name of its function, and the part's name or a function that returns it."""

KeyT = TypeVar("KeyT", bound=Hashable)

RESULTS = Path(__file__).parent / "results"


def machine(packages: Sequence[str], **peers: Sequence[str]) -> dict[str, Any]:
    """Return the machine, the versions and the commit of a result.

    Args:
        packages: distributions whose versions are recorded.
        peers: further packages, by the module of an optional library; recorded where that is
            installed.
    """
    found = [peers[module] for module in peers if importlib.util.find_spec(module)]
    packages = [*packages, *chain(*found)]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in packages},
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit,
    }


def interleave(
    contenders: Mapping[KeyT, Callable[[], Any]], rounds: int
) -> dict[KeyT, list[float]]:
    """Run all contenders in turn, ``rounds`` times; return each one's seconds per run.

    Other work on the machine then slows all of them alike.
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
    """Return the summary of the ratios within each round, whose runs had about the same load."""
    return summary([value / base for value, base in zip(values, baseline, strict=True)])


def interleave_calls(
    contenders: Mapping[KeyT, Callable[[], Any]], rounds: int, calls: int
) -> dict[KeyT, npt.NDArray[np.float64]]:
    """Run all contenders in turn, each ``calls`` times in a row; return the seconds of each call.

    Returns:
        Arrays (rounds, calls). The first call of a turn finds caches that the others have filled.
    """
    seconds: dict[KeyT, list[float]] = {name: [] for name in contenders}

    def turn(name: KeyT) -> None:
        call, kept = contenders[name], seconds[name]
        for _ in range(calls):
            started = time.perf_counter()
            call()
            kept.append(time.perf_counter() - started)

    interleave({name: partial(turn, name) for name in contenders}, rounds)
    return {name: np.reshape(kept, (rounds, calls)) for name, kept in seconds.items()}


def interleave_counted(
    contenders: Mapping[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Run all contenders in turn; return the seconds of each run, and its processor seconds.

    The latter are of all threads of this process, and hardly depend on other programs.
    """
    processor: dict[str, list[float]] = {name: [] for name in contenders}

    def counted(name: str) -> None:
        before = time.process_time()
        contenders[name]()
        processor[name].append(time.process_time() - before)

    return interleave({name: partial(counted, name) for name in contenders}, rounds), processor


def run_process(code: str) -> tuple[float, float, str]:
    """Run Python code in a process of its own, with one thread for each library's arithmetic.

    Returns:
        Its wall-clock seconds, its processor seconds, and its output.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    process = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
    )
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    return wall, processor, process.stdout


TURNS = """
import json, sys, time
print("ready", json.dumps(versions), flush=True)
for line in sys.stdin:
    wall, processor = time.perf_counter(), time.process_time()
    done = train(int(line))
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print("done", done, wall, processor, flush=True)
"""


class Side:
    """A library in a process of its own, idle during others' turns.

    Args:
        program: code that defines ``versions``, and ``train(amount)``, which returns the work done.
        python: interpreter that has the library.
        amount: of a turn.
        warm_up: amount before the first turn.
    """

    def __init__(self, program: str, python: str, amount: int, *, warm_up: int) -> None:
        self._process = subprocess.Popen(
            [python, "-W", "ignore", "-c", program + TURNS],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self._amount = amount
        self.speeds: list[float] = []
        """Amount per second of wall-clock time, by turn."""
        self.processor_speeds: list[float] = []
        """Amount per second of the process's processor time, by turn."""
        self.versions: dict[str, str] = json.loads(" ".join(self._answer("ready")))
        self._ask(warm_up)

    def turn(self) -> None:
        """Do the work once, and record its speeds."""
        done, wall, processor = self._ask(self._amount)
        self.speeds.append(done / wall)
        self.processor_speeds.append(done / processor)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _ask(self, amount: int) -> list[float]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{amount}\n")
        self._process.stdin.flush()
        return [float(word) for word in self._answer("done")]

    def _answer(self, word: str) -> list[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.split()[1:]
        raise RuntimeError("the process has ended; its output says why")


def run_in_turns(sides: Mapping[str, Side], rounds: int) -> dict[str, str]:
    """Give each side its turn, ``rounds`` times, and end all; return versions by library."""
    try:
        interleave({name: side.turn for name, side in sides.items()}, rounds)
    finally:
        for side in sides.values():
            side.close()
    return {name: v for side in sides.values() for name, v in side.versions.items()}


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def on_one_core(run: Callable[[], Any]) -> None:
    """Run with all threads of this process on one core, as JAX's number of threads is fixed."""
    cores = os.sched_getaffinity(0)

    def keep_to(allowed: set[int]) -> None:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), allowed)

    keep_to({min(cores)})
    try:
        run()
    finally:
        keep_to(cores)


def peak_mib() -> float:
    """Return the peak resident memory of this process in MiB, on Linux.

    ``ru_maxrss`` would be the parent's, if that was larger.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def peaks_alone(contenders: Iterable[str], *arguments: str) -> dict[str, float]:
    """Return this script's peak MiB with each contender in a process of its own.

    There the script prints it last, with ``--peak``.
    """
    peaks = {}
    for name in contenders:
        command = [sys.executable, sys.argv[0], *arguments, "--contenders", name, "--peak"]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        peaks[name] = float(ended.stdout.split()[-1])
    return peaks


def write(name: str, result: Mapping[str, Any]) -> Path:
    """Write a result to ``benchmarks/results/<processor's make, family and model>/<name>.json``."""
    path = _path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return path


def kept(name: str) -> dict[str, Any]:
    """Return the result last written under a name on such a processor; empty without one."""
    path = _path(name)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _path(name: str) -> Path:
    cpu = str(machine([])["cpu"])
    make = re.sub(r"\(R\)|\(TM\)|CPU|Processor|@[^,]*|family|model|,", "", cpu)
    return RESULTS / "-".join(make.lower().split()) / f"{name}.json"


def time_by_part(
    step: Callable[[], Any],
    parts: list[Part],
    rounds: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:
    """Return mean milliseconds of a step by its parts, with the rest as ``else``.

    A part's clock stops while another part runs within it.

    Args:
        step: the measured call.
        parts: functions that it calls.
        rounds: number of calls.
        clock: returns seconds; by default the process's processor time.
    """
    spent: dict[str, float] = {}
    running = ["else"]
    since = clock()

    def switch() -> None:
        nonlocal since
        now = clock()
        spent[running[-1]] = spent.get(running[-1], 0.0) + now - since
        since = now

    def timed(function: Any, name: str | Callable[[], str]) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            switch()
            running.append(name if isinstance(name, str) else name())
            try:
                return function(*arguments, **options)
            finally:
                switch()
                running.pop()

        return call

    with ExitStack() as stack:
        for owner, attribute, name in parts:
            new = timed(getattr(owner, attribute), name)
            stack.enter_context(mock.patch.object(owner, attribute, new))
        since = clock()
        for _ in range(rounds):
            step()
        switch()
    return {name: round(1000 * seconds / rounds, 1) for name, seconds in sorted(spent.items())}
