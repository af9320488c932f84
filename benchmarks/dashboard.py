"""How fast ``rlox dashboard`` opens many long runs and follows them.

python benchmarks/dashboard.py [--runs 200] [--rows 100000] [--rounds 5] [--followed 20]

Needs the group ``browser`` and a Chromium for the figures of the page; without, those over HTTP
are measured alone.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import importlib.util
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from measure import machine, summary, write

VARIANTS = 8
"""Logs that differ; runs share their contents, not their files."""


def log_of(rows: int, seed: int) -> str:
    """Return a log with the metrics of PPO and a hundred evaluations."""
    rng = random.Random(seed)
    names = ("mean_episode_length", "episodes", "policy_loss", "value_loss", "entropy",
             "approx_kl", "clip_fraction", "explained_variance", "learning_rate",
             "env_steps_per_second")  # fmt: skip
    lines = []
    for i in range(1, rows + 1):
        value = 500 * i / rows + rng.gauss(0, 20)
        row = {"kind": "train", "step": 1024 * i, "mean_reward": value}
        lines.append(json.dumps(row | {name: rng.random() for name in names}))
        if i % (rows // 100) == 0:
            evaluation = {"kind": "eval", "step": 1024 * i, "mean_reward": value, "std_reward": 1.0}
            lines.append(json.dumps(evaluation))
    return "\n".join(lines) + "\n"


def make_runs(folder: Path, runs: int, rows: int) -> int:
    """Write run folders and return the bytes of their logs."""
    logs = [log_of(rows, seed).encode() for seed in range(min(VARIANTS, runs))]
    for number in range(runs):
        run = folder / f"run-{number:03d}"
        run.mkdir(parents=True)
        record = {"algorithm": "ppo", "env": f"Env{number % 4}-v1", "status": "running",
                  "seed": number, "total_timesteps": 2048 * rows, "step_unit": "env_steps",
                  "env_steps": 0}  # fmt: skip
        (run / "run.json").write_text(json.dumps(record))
        (run / "config.yaml").write_text(f"gamma: 0.{90 + number % 10}\nseed: {number}\n")
        (run / "metrics.jsonl").write_bytes(logs[number % len(logs)])
    return sum(len(logs[number % len(logs)]) for number in range(runs))


@contextlib.contextmanager
def dashboard(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a dashboard and return its address and process."""
    code = "from rlox.cli import main; main()"
    command = [sys.executable, "-c", code, "dashboard", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1], process
    finally:
        process.terminate()
        process.wait()


def events(address: str) -> Iterator[tuple[str, Any]]:
    """Yield the events of a stream."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
    connection.request("GET", f"{parts.path}events?metric=mean_reward")
    name = ""
    with contextlib.closing(connection):
        for line in connection.getresponse():
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:])


def open_over_http(address: str, runs: int) -> float:
    """Return the seconds until the curves of all runs have come."""
    began, found = time.perf_counter(), set()
    for name, data in events(address):
        if name == "curves":
            found |= {curve["id"] for curve in data["curves"]}
        if len(found) == runs:
            break
    return time.perf_counter() - began


def append(folder: Path, number: int, step: int) -> None:
    """Log a row."""
    row = {"kind": "train", "step": step, "mean_reward": 1.0}
    with (folder / f"run-{number:03d}" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def follow_over_http(address: str, folder: Path, runs: int, step: int, rows: int) -> list[float]:
    """Return the seconds from each of some appended rows to the event that has it."""
    seconds: list[float] = []
    began, known = 0.0, set()
    for name, data in events(address):
        curves = data["curves"] if name == "curves" else []
        known |= {curve["id"] for curve in curves}
        if began and any(step in curve["x"] for curve in curves):
            seconds.append(time.perf_counter() - began)
            began = 0.0
        if len(seconds) == rows:
            break
        if not began and len(known) == runs:
            time.sleep(random.random() / 5)  # at any moment of the server's interval
            step += 1
            began = time.perf_counter()
            append(folder, len(seconds) * 7 % runs, step)
    return seconds


def memory_of(process: subprocess.Popen[str]) -> float | None:
    """Return the resident mebibytes of a process, where the system says."""
    path = Path(f"/proc/{process.pid}/status")
    lines = path.read_text().splitlines() if path.is_file() else []
    found = [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")]
    return round(found[0], 1) if found else None


class Browser:
    """A headless Chromium."""

    def __init__(self, playwright: Any, path: str) -> None:
        self._browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        self._page = self._browser.new_page()

    def open(self, address: str, runs: int) -> float:
        """Return the seconds until the lines of all runs are drawn."""
        began = time.perf_counter()
        self._page.goto(address)
        self._page.wait_for_function(
            "runs => [...charts.values()].reduce((n, c) => n + c.lines.length, 0) === runs",
            arg=runs,
        )
        return time.perf_counter() - began

    def follow(self, folder: Path, step: int, rows: int) -> list[float]:
        """Return the seconds from each of some appended rows to the page that has it."""
        seconds = []
        for i in range(rows):
            time.sleep(random.random() / 5)
            began = time.perf_counter()
            append(folder, i, step + 1000 + i)
            self._page.wait_for_function(
                "step => [...curves.values()].some((curve) => curve.x.at(-1) === step)",
                arg=step + 1000 + i,
            )
            seconds.append(time.perf_counter() - began)
        return seconds

    def close(self) -> None:
        """End it."""
        self._browser.close()


@contextlib.contextmanager
def browser() -> Iterator[Browser | None]:
    """Start a Chromium of the machine, if it and what drives it are there."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None or importlib.util.find_spec("playwright") is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = Browser(playwright, path)
        yield found
        found.close()


def in_seconds(values: list[float]) -> dict[str, float]:
    """Return the median with its spread."""
    return {name: round(value, 3) for name, value in summary(values).items()}


def main() -> None:
    """Measure and write ``benchmarks/results/<processor>/dashboard.json``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--followed", type=int, default=20)
    given = parser.parse_args()
    where = machine(["rlox-core", "starlette", "uvicorn"])
    figures: dict[str, list[float]] = {}
    memory = None
    with tempfile.TemporaryDirectory() as name, browser() as page:
        folder = Path(name)
        size = make_runs(folder, given.runs, given.rows)
        step = 1024 * given.rows
        for _ in range(given.rounds):
            with dashboard(folder) as (address, process):
                took = open_over_http(address, given.runs)
                figures.setdefault("opened by a server that has just begun", []).append(took)
                took = open_over_http(address, given.runs)
                figures.setdefault("opened again", []).append(took)
                memory = memory_of(process)
            if page is not None:
                with dashboard(folder) as (address, _):
                    took = page.open(address, given.runs)
                    figures.setdefault("drawn in the browser, server just begun", []).append(took)
                    took = page.open(address, given.runs)
                    figures.setdefault("drawn in the browser again", []).append(took)
        with dashboard(folder) as (address, _):
            found = follow_over_http(address, folder, given.runs, step, given.followed)
            figures["from a row to its event"] = found
            if page is not None:
                page.open(address, given.runs)
                found = page.follow(folder, step, given.followed)
                figures["from a row to the page"] = found
    rows = {name: in_seconds(values) for name, values in figures.items()}
    for name, row in rows.items():
        print(f"{name:40s} {row['median']:6.3f} s, at most {row['max']:6.3f} s")
    result = {"runs": given.runs, "rows": given.rows, "log_bytes": size, "rounds": given.rounds,
              "followed": given.followed, "machine": where, "server_mebibytes": memory,
              "seconds": rows}  # fmt: skip
    print(write("dashboard", result))


if __name__ == "__main__":
    main()
