"""Learning curves from run logs, aggregated over seeds."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from rlox.errors import RunError, suggest
from rlox.files import open_regular, read_text

from rlox_tools.analysis.runs import read_record
from rlox_tools.analysis.statistics import IntervalEstimate, bootstrap_iqm

__all__ = [
    "Curve",
    "Group",
    "XAxis",
    "aggregate",
    "default_metric",
    "find_runs",
    "group_runs",
    "has_values",
    "read_curve",
]

Floats = npt.NDArray[np.float64]

XAxis = Literal["steps", "seconds"]
"""What a curve runs over: the run's env steps, or gradient steps if it learns from a dataset; or
seconds of collecting and learning, without evaluations."""

GRID_POINTS = 200


@dataclass(frozen=True)
class Curve:
    """One metric of one run."""

    run: Path
    x: Floats
    """(P,) increasing, in steps or seconds."""
    y: Floats
    """(P,) finite."""
    unit: str = "env_steps"
    """What the run's steps are."""


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only."""

    label: str
    env: str
    curves: tuple[Curve, ...]


def find_runs(path: Path) -> list[Path]:
    """Return the run folders that ``path`` is or holds, such as those of a sweep or of ``runs``.

    Raises:
        RunError: there is none.
    """
    if not path.is_dir():
        raise RunError(f"'{path}' is no folder; name a run folder, a sweep or a folder of them")
    found = sorted(file.parent for file in path.rglob("run.json"))
    runs = [run for run in found if not any(p.suffix == ".superseded" for p in (run, *run.parents))]
    if not runs:
        raise RunError(f"folder '{path}' holds no run: there is no run.json in it")
    return runs


def default_metric(runs: Iterable[Path]) -> str:
    """Return the name of the metric that measures the policies of runs.

    ``"mean_reward"``, of the episodes that the training itself finished, if any run has logged it,
    or none has logged anything; else, as if all learn from datasets, that of the evaluations,
    ``"eval/mean_reward"``.

    Raises:
        RunError: a run's log is damaged or missing.
    """
    logs = [rows for rows in map(_rows, runs) if rows]
    trained = any("mean_reward" in _names(rows, "train") for rows in logs)
    return "mean_reward" if trained or not logs else "eval/mean_reward"


def has_values(run: Path, metric: str) -> bool:
    """Return whether a run has logged a finite value of a metric, as :func:`read_curve` needs.

    Raises:
        RunError: the run's log is damaged or missing.
    """
    kind, _, name = metric.rpartition("/")
    return any(row["kind"] == (kind or "train") and _finite(row.get(name)) for row in _rows(run))


def read_curve(run: Path, metric: str = "mean_reward", x: XAxis = "steps") -> Curve:
    """Return a metric of a run from its ``metrics.jsonl``, else from its CSV tables.

    Args:
        run: a run folder.
        metric: a name in the log; ``"eval/mean_reward"`` is that of the evaluations.
        x: what it runs over.

    Raises:
        RunError: the run has no such metric, or no value of it.
    """
    if x not in get_args(XAxis):
        raise RunError(f"x must be one of {', '.join(get_args(XAxis))}, got '{x}'")
    kind, _, name = metric.rpartition("/")
    rows = _rows(run)
    wanted = [row for row in rows if row["kind"] == (kind or "train")]
    if not wanted:
        raise RunError(
            f"run '{run}' has logged no {kind or 'train'} row"
            + ("; --eval-freq makes evaluations" if kind == "eval" else "")
        )
    if not any(name in row for row in wanted):
        known = sorted(_names(rows, "train")) + sorted(f"eval/{n}" for n in _names(rows, "eval"))
        raise RunError(
            f"run '{run}' has no metric '{metric}'{suggest(metric, known)} "
            f"(it has {', '.join(known)})"
        )
    points = {row["step"]: row[name] for row in wanted if _finite(row.get(name))}
    if not points:
        raise RunError(f"the metric '{metric}' of run '{run}' has no value yet")
    steps = np.array(sorted(points), np.float64)
    values = np.array([points[step] for step in sorted(points)], np.float64)
    unit = _unit(rows)
    if x == "seconds":
        return Curve(run, _seconds_at(steps, rows, run, unit), values, unit)
    return Curve(run, steps, values, unit)


def group_runs(
    runs: Iterable[tuple[str | None, Path]], metric: str = "mean_reward", x: XAxis = "steps"
) -> list[Group]:
    """Return the runs' curves by env, algorithm and label, in the order in which they come.

    Args:
        runs: run folders, each with a label; ``None`` uses the algorithm's name.
        metric: see :func:`read_curve`.
        x: see :func:`read_curve`.

    Raises:
        RunError: a run has no such metric.
    """
    found: dict[tuple[str, str, str], list[Curve]] = {}
    for label, run in runs:
        record = read_record(run)
        algorithm, env = str(record.get("algorithm")), str(record.get("env"))
        key = (env, algorithm, label or algorithm)
        found.setdefault(key, []).append(read_curve(run, metric, x))
    return [Group(label, env, tuple(curves)) for (env, _, label), curves in found.items()]


def aggregate(curves: Sequence[Curve]) -> tuple[Floats, IntervalEstimate]:
    """Return common points (T,) and the interquartile mean over runs at each, with its interval.

    The points span what all runs have, so that each is of the same runs; between the logged points
    a curve is taken for straight.

    Raises:
        RunError: there is no common span.
    """
    first = max(curve.x[0] for curve in curves)
    last = min(curve.x[-1] for curve in curves)
    if first > last:
        ends = min(curves, key=lambda curve: curve.x[-1]).run
        raise RunError(f"run '{ends}' ends at {last:g}, before all others have begun at {first:g}")
    points = max(len(curve.x) for curve in curves)
    grid = np.linspace(first, last, min(points, GRID_POINTS))
    return grid, bootstrap_iqm([[np.interp(grid, curve.x, curve.y) for curve in curves]])


def _rows(run: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's log, each with ``kind`` and ``step``."""
    try:
        if (run / "metrics.jsonl").is_file():
            lines = read_text(run / "metrics.jsonl").splitlines(keepends=True)
            # a crash, or a run that is under way, leaves half a line
            rows = [json.loads(line) for line in lines if line.endswith("\n")]
            return [{**row, "kind": row["kind"], "step": int(row["step"])} for row in rows]
        if (run / "metrics.csv").is_file():
            tables = {"train": "metrics.csv", "eval": "evaluations.csv"}
            return [row for kind, name in tables.items() for row in _table(run / name, kind)]
    except (ValueError, TypeError, LookupError) as error:
        raise RunError(f"the log of run '{run}' is damaged: {error}") from None
    raise RunError(
        f"run '{run}' has no metrics.jsonl and no metrics.csv; train with --logger jsonl or csv"
    )


def _table(path: Path, kind: str) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    with open_regular(path) as file:
        return [
            {"kind": kind, **{k: float(v) for k, v in row.items() if v}}
            for row in csv.DictReader(file)
            if None not in row.values()
        ]


def _names(rows: Iterable[Mapping[str, Any]], kind: str) -> set[str]:
    """Return the names of the metrics in the rows of a kind."""
    return {key for row in rows if row["kind"] == kind for key in row} - {"kind", "step"}


def _unit(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return what the steps of a run are, from the speed that its rows have."""
    named = (name for row in rows for name in row if name.endswith("_per_second"))
    return next(named, "env_steps_per_second").removesuffix("_per_second")


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _seconds_at(steps: Floats, rows: Iterable[Mapping[str, Any]], run: Path, unit: str) -> Floats:
    """Return when the run was at ``steps``, from the speed that each iteration logged."""
    name = f"{unit}_per_second"
    speeds = {
        row["step"]: row[name] for row in rows if row["kind"] == "train" and _finite(row.get(name))
    }
    if not speeds:
        raise RunError(f"run '{run}' has no {name}, which x = seconds is made of")
    ends = np.array([0, *sorted(speeds)], np.float64)
    durations = np.diff(ends) / [speeds[end] for end in sorted(speeds)]
    seconds: Floats = np.interp(steps, ends, np.array([0.0, *durations.cumsum()]))
    return seconds
