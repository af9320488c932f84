"""State of the runs in folders, read as they change."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlox.analysis.learning_curves import find_runs
from rlox.analysis.run_logs import SampledLog
from rlox.analysis.runs import Run, differing_options, open_in_run, read_run
from rlox.cli.sweeps.folder import set_of
from rlox.errors import RunError

__all__ = ["WatchedRun", "Watcher"]

LOG_TAIL = 2**14
"""Bytes of a run's output that are shown."""

SCANNING = 0.1
"""Seconds of a look at all runs in which long logs are searched for evaluations."""

FINE_POINTS = 1024
"""Rows of a run that is looked at alone."""


class WatchedRun:
    """A run and its log.

    Args:
        number: its id.
        path: its folder.
        name: how the dashboard calls it.
    """

    def __init__(self, number: int, path: Path, name: str) -> None:
        self.number = number
        self.path = path
        self.name = name
        self.log = SampledLog(path)
        self.run = Run(path, {}, {})
        self.group = ""
        """Equal for runs of one algorithm with the same options, seeds aside."""
        self.problem = ""
        """Why the folder cannot be read."""
        self._recorded = 0

    def refresh(self) -> bool:
        """Read what changed and return whether anything did."""
        problem, changed = "", False
        try:
            recorded = (self.path / "run.json").stat().st_mtime_ns
            if recorded != self._recorded:
                self._recorded, changed = recorded, True
                self.run = read_run(self.path)
                self.group = _group_of(self.run)
            changed |= self.log.refresh()
        except (OSError, RunError) as error:
            problem = " ".join(str(error).split())
        changed |= problem != self.problem
        self.problem = problem
        return changed

    def summary(self) -> dict[str, Any]:
        """Return what the table shows."""
        run = self.run
        logged = self.log.train[-1].step if self.log.train else 0
        return {
            "id": self.number,
            "name": self.name,
            "set": set_of(self.path) or "",
            "group": self.group,
            "algorithm": run.algorithm,
            "env": run.env,
            "seed": run.seed,
            "status": "damaged" if self.problem else run.status,
            "problem": self.problem,
            "steps": max(run.steps, logged),
            "target": run.target,
            "unit": run.step_unit.replace("_", " "),
            "evaluation": None if run.evaluation is None else list(run.evaluation),
            "updated": self.log.updated,
            "metrics": self.log.metrics,
        }

    def points(self, metric: str, after: int = -1) -> tuple[list[int], list[float]]:
        """Return steps and values of a metric at steps above ``after``."""
        rows, name = self.log.rows(metric)
        found = [(row.step, row.get(name)) for row in rows if row.step > after]
        pairs = [(step, value) for step, value in found if value is not None]
        return [step for step, _ in pairs], [value for _, value in pairs]

    def details(self) -> dict[str, Any]:
        """Return what is shown of a run alone: every metric, options, films, output.

        Raises:
            OSError: a file cannot be read.
        """
        fine = SampledLog(self.path, FINE_POINTS)
        fine.refresh()
        fine.evaluations = self.log.evaluations
        curves = {}
        for metric in dict.fromkeys([*self.log.metrics, *fine.metrics]):
            rows, name = fine.rows(metric)
            pairs = [(row.step, value) for row in rows if (value := row.get(name)) is not None]
            curves[metric] = {"x": [x for x, _ in pairs], "y": [y for _, y in pairs]}
        options = {name: str(value) for name, value in self.run.options.items()}
        films = [path.relative_to(self.path).as_posix() for path in self.run.films()]
        return {
            **self.summary(),
            "path": str(self.path),
            "command": str(self.run.record.get("command", "")),
            "options": options,
            "films": films,
            "curves": curves,
            "log": self.tail(),
        }

    def tail(self) -> str:
        """Return the end of what the run printed, if a sweep kept it, else of its log.

        Raises:
            OSError: a file cannot be read.
        """
        output = Path(f"{self.path}.log")
        where = (output.parent, output.name) if output.is_file() else (self.path, "metrics.jsonl")
        try:
            with open_in_run(*where) as file:
                file.seek(0, 2)
                file.seek(max(file.tell() - LOG_TAIL, 0))
                return file.read(LOG_TAIL).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""


class Watcher:
    """The runs in folders.

    Args:
        roots: folders that hold runs, or will.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = roots
        self.runs: dict[int, WatchedRun] = {}
        self.version = 0
        """Grows with each change."""
        self.changed: dict[int, int] = {}
        """The version in which each run changed last."""
        self._known: dict[Path, int] = {}
        self._looked = -float("inf")

    def steps(self) -> Iterator[None]:
        """Read what changed, in pieces of a few milliseconds.

        Runs that are new are looked for once a second. Long logs are searched for evaluations a
        part at a time, so that this holds up nothing.
        """
        if time.monotonic() - self._looked > 1:
            yield from self._look_for_runs()
            self._looked = time.monotonic()
        before = self.version
        for run in list(self.runs.values()):
            self._note(run, run.refresh())
            yield
        if self.version != before:  # pages draw that first
            return
        until = time.monotonic() + SCANNING
        for run in list(self.runs.values()):
            found = False
            while not run.log.scanned and time.monotonic() < until:
                found |= self._scan(run)
                yield
            self._note(run, found)

    def compare(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Return the options in which runs differ, and the names of the runs."""
        runs = [self.runs[number] for number in numbers if number in self.runs]
        return {
            "runs": [run.name for run in runs],
            "options": differing_options([run.run for run in runs]) if runs else {},
        }

    def _look_for_runs(self) -> Iterator[None]:
        for root in self.roots:
            try:
                found = find_runs(root)
            except RunError:  # nothing yet
                found = []
            yield
            for path in found:
                if path not in self._known:
                    number = self._known[path] = len(self._known)
                    name = path.name if path == root else path.relative_to(root).as_posix()
                    self.runs[number] = WatchedRun(number, path, name)
        gone = [number for path, number in self._known.items() if not path.is_dir()]
        for number in gone:
            if self.runs.pop(number, None) is not None:
                self._note_gone(number)

    def _scan(self, run: WatchedRun) -> bool:
        try:
            return run.log.scan()
        except OSError:  # its next refresh says why
            run.log = SampledLog(run.path)
            return True

    def _note(self, run: WatchedRun, changed: bool) -> None:
        if changed:
            self.version += 1
            self.changed[run.number] = self.version

    def _note_gone(self, number: int) -> None:
        self.version += 1
        self.changed[number] = self.version


def _group_of(run: Run) -> str:
    options = {name: value for name, value in run.options.items() if name != "seed"}
    text = json.dumps(options, sort_keys=True, default=str)
    return f"{run.algorithm} {hashlib.sha256(text.encode()).hexdigest()[:16]}"
