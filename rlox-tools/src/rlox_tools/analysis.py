"""Analysis of runs: their records, learning curves and statistics over seeds."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from rlox.cli.runs.folder import step_unit_of
from rlox.config.files import read_mapping
from rlox.errors import ConfigError, RunError, suggest
from rlox.files import open_regular, pairs_as_html, read_text

Floats = npt.NDArray[np.float64]

XAxis = Literal["steps", "seconds"]
"""The x axis of a curve: the run's env steps, or gradient steps if it learns from a dataset; or
seconds of collecting and learning, without evaluations."""

GRID_POINTS = 200

CHUNK = 1 << 22
"""Numbers to resample at a time."""

FILMS = {".mp4": "video/mp4", ".gif": "image/gif"}
"""Media types of the films that a run folder may hold."""


@dataclass(frozen=True)
class IntervalEstimate:
    """A statistic with its bootstrap confidence interval, a number or an array (T,) each."""

    value: Floats
    low: Floats
    high: Floats


def interquartile_mean(scores: npt.ArrayLike, axis: int = 0) -> Any:
    """Return the mean of the middle half of the scores.

    Drops the ⌊n/4⌋ lowest and highest of n scores; with fewer than four, nothing is dropped. More
    robust than the mean, and statistically more efficient than the median.

    Args:
        scores: runs along ``axis``.
        axis: axis of the runs.

    Raises:
        ValueError: there are no scores, or one is not finite.

    Source:
        Agarwal et al. 2021, sec. 4.3; equals ``scipy.stats.trim_mean(scores, 0.25, axis)``.
    """
    array = np.asarray(scores, np.float64)
    if array.ndim == 0 or not array.shape[axis]:
        raise ValueError("there are no scores")
    if not np.isfinite(array).all():
        raise ValueError("scores must be finite")
    cut = array.shape[axis] // 4
    middle = np.sort(array, axis).take(range(cut, array.shape[axis] - cut), axis)
    return middle.mean(axis)


def bootstrap_iqm(
    strata: Sequence[npt.ArrayLike],
    *,
    confidence: float = 0.95,
    n_resamples: int = 2_000,
    seed: int = 0,
) -> IntervalEstimate:
    """Return the interquartile mean of all runs and its stratified percentile bootstrap interval.

    Runs are drawn with replacement within each stratum, which keeps its number of runs, and the
    interval holds the middle ``confidence`` of the resamples' interquartile means. A single run
    has no spread: its interval is a point.

    Args:
        strata: per task (R_k,) scores of its R_k runs, or (R_k, T) curves on T common points.
        confidence: share in (0, 1).
        n_resamples: number of resamples.
        seed: fixes the draws.

    Raises:
        ValueError: scores are missing or not finite, or an option is out of range.

    Source:
        Agarwal et al. 2021, sec. 4.1: stratified over tasks.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    if n_resamples < 1:
        raise ValueError(f"n_resamples must be at least 1, got {n_resamples}")
    arrays = [np.asarray(stratum, np.float64) for stratum in strata]
    if not arrays or any(not len(array) for array in arrays):
        raise ValueError("there are no scores")
    everything = np.concatenate(arrays)
    value = interquartile_mean(everything)
    rng = np.random.default_rng(seed)
    at_once = max(CHUNK // max(everything.size, 1), 1)
    resampled = []
    for done in range(0, n_resamples, at_once):
        count = min(at_once, n_resamples - done)
        drawn = [a[rng.integers(len(a), size=(count, len(a)))] for a in arrays]
        resampled.append(interquartile_mean(np.concatenate(drawn, axis=1), axis=1))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(resampled), [tail, 1 - tail], axis=0)
    return IntervalEstimate(np.asarray(value), low, high)


@dataclass(frozen=True)
class Run:
    """A run folder, as read from its files.

    The files may be of unknown origin: escape every text in them before you show it.
    """

    path: Path
    record: Mapping[str, Any]
    """``run.json``."""
    options: Mapping[str, Any]
    """``config.yaml``; empty for a run that has written none."""

    @property
    def algorithm(self) -> str:
        """Registered name."""
        return str(self.record.get("algorithm"))

    @property
    def env(self) -> str:
        """The training's env; without one the name of its first part: a dataset or a model."""
        options: Any = self.record.get("options")
        try:
            parts = [Path(part).name for part in options["parts"].values()]
        except (TypeError, LookupError, AttributeError):  # none, or from an unknown program
            parts = []
        return str(self.record.get("env") or next(iter(parts), "-"))

    @property
    def status(self) -> str:
        """``"running"``, ``"finished"``, ``"interrupted"`` or ``"failed"``."""
        return str(self.record.get("status"))

    @property
    def seed(self) -> str:
        """Seed of all random streams."""
        return str(self.record.get("seed", "-"))

    @property
    def step_unit(self) -> str:
        """Unit of the training's steps."""
        return step_unit_of(self.record)

    @property
    def steps(self) -> int:
        """Steps done when the record was written; a running training wrote it at its start."""
        return _whole(self.record.get(self.step_unit))

    @property
    def target(self) -> int:
        """Target number of steps."""
        return _whole(self.record.get("total_timesteps"))

    @property
    def evaluation(self) -> tuple[float, float, int] | None:
        """Mean, standard deviation and episodes of the evaluation at the end."""
        found = self.record.get("evaluation")
        try:
            return float(found["mean"]), float(found["std"]), int(found["n_episodes"])  # type: ignore[index]
        except (TypeError, ValueError, LookupError, OverflowError):
            return None

    @property
    def score(self) -> str:
        """:attr:`evaluation` in words; a dash without one."""
        if self.evaluation is None:
            return "-"
        mean, std, episodes = self.evaluation
        return f"{mean:.1f} ± {std:.1f} over {episodes} episodes"

    def films(self) -> list[Path]:
        """Return the films in the folder, the newest first; links are left out."""
        files = [Path(parent, name) for parent, _, names in os.walk(self.path) for name in names]
        found = [f for f in files if f.suffix in FILMS and f.is_file() and not f.is_symlink()]
        return sorted(found, key=lambda path: (path.stat().st_mtime, path), reverse=True)

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        unit = self.step_unit.replace("_", " ")
        pairs = {
            "algorithm": self.algorithm,
            "env": self.env,
            "status": self.status,
            "seed": self.seed,
            unit: f"{self.steps:,} of {self.target:,}",
        }
        if self.evaluation is not None:
            pairs["return"] = self.score
        return pairs_as_html(str(self.path), pairs)


def read_run(path: Path) -> Run:
    """Return the run in a folder.

    Raises:
        RunError: it has no record, or a file is damaged.
    """
    record = read_record(path)
    config = path / "config.yaml"
    try:
        return Run(path, record, read_mapping(config) if config.is_file() else {})
    except ConfigError as error:
        raise RunError(str(error)) from None


def read_record(run: Path) -> Mapping[str, Any]:
    """Return the ``run.json`` of a run folder.

    Raises:
        RunError: it is missing, or not the record of a run.
    """
    try:
        found = json.loads(read_text(run / "run.json"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"'{run / 'run.json'}' cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise RunError(f"'{run / 'run.json'}' is not a record of a run")
    return found


def differing_options(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return the options that differ between runs, except seeds.

    Returns:
        By name, the value in each run as text; ``"-"`` if it is missing.
    """
    names = dict.fromkeys(name for run in runs for name in run.options)
    values = {
        name: [_text(run.options[name]) if name in run.options else "-" for run in runs]
        for name in names
        if name != "seed"
    }
    return {name: texts for name, texts in values.items() if len(set(texts)) > 1}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


@dataclass(frozen=True)
class Curve:
    """One metric of one run."""

    run: Path
    x: Floats
    """(P,) increasing, in steps or seconds."""
    y: Floats
    """(P,) finite."""
    unit: str = "env_steps"
    """Unit of the run's steps."""


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed."""

    label: str
    env: str
    curves: tuple[Curve, ...]


def find_runs(path: Path) -> list[Path]:
    """Return the run folders at or below ``path``, such as those of a sweep or of ``runs``.

    Raises:
        RunError: there is none.
    """
    if not path.is_dir():
        raise RunError(f"'{path}' is not a folder; name a run folder, a sweep or a folder of them")
    found = sorted(file.parent for file in path.rglob("run.json"))
    runs = [run for run in found if not any(p.suffix == ".superseded" for p in (run, *run.parents))]
    if not runs:
        raise RunError(f"folder '{path}' holds no run: there is no run.json in it")
    return runs


def default_metric(runs: Iterable[Path]) -> str:
    """Return the name of the metric that measures the policies of runs.

    ``"mean_reward"``, over the training's own episodes, if any run has logged it or none has logged
    anything; else ``"eval/mean_reward"``, that of the evaluations, for example if all runs learn
    from datasets.

    Raises:
        RunError: a run's log is damaged or missing.
    """
    logs = [rows for rows in map(_rows, runs) if rows]
    trained = any("mean_reward" in _names(rows, "train") for rows in logs)
    return "mean_reward" if trained or not logs else "eval/mean_reward"


def has_values(run: Path, metric: str) -> bool:
    """Return whether a run has logged a finite value of a metric, which :func:`read_curve` needs.

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
        x: unit of the x axis.

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
    """Return the runs' curves by env, algorithm and label, in order of appearance.

    Args:
        runs: run folders, each with a label; ``None`` uses the algorithm's name, which is added to
            a label of several algorithms.
        metric: see :func:`read_curve`.
        x: see :func:`read_curve`.

    Raises:
        RunError: a run has no such metric.
    """
    found: dict[tuple[str, str, str], list[Curve]] = {}
    for label, run in runs:
        of = Run(run, read_record(run), {})
        key = (of.env, of.algorithm, label or of.algorithm)
        found.setdefault(key, []).append(read_curve(run, metric, x))
    groups = []
    for (env, algorithm, label), curves in found.items():
        shared = any(name == label and other != algorithm for _, other, name in found)
        groups.append(Group(f"{algorithm}, {label}" if shared else label, env, tuple(curves)))
    return groups


def aggregate(curves: Sequence[Curve]) -> tuple[Floats, IntervalEstimate]:
    """Return common points (T,) and the interquartile mean over runs at each, with its interval.

    The points lie in the span that all runs share; between its logged points a curve is
    interpolated linearly.

    Raises:
        RunError: the runs have no common span.
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
            # a crash, or a running training, leaves half a line
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
    """Return the unit of a run's steps, from the name of the logged speed."""
    named = (name for row in rows for name in row if name.endswith("_per_second"))
    return next(named, "env_steps_per_second").removesuffix("_per_second")


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _seconds_at(steps: Floats, rows: Iterable[Mapping[str, Any]], run: Path, unit: str) -> Floats:
    """Return the time at each of ``steps`` in seconds, from the logged speed of each iteration."""
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
