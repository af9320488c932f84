"""Sweep results: table, interquartile means and learning curves."""

from __future__ import annotations

import csv
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlox.cli.output import print_pairs, print_table
from rlox.cli.runs.folder import step_unit_of
from rlox.errors import RunError
from rlox.files import open_regular

from rlox_tools.analysis.learning_curves import aggregate, default_metric, group_runs
from rlox_tools.analysis.statistics import bootstrap_iqm
from rlox_tools.sweeps.folder import Member, Sweep

__all__ = ["print_results"]


def print_results(sweep: Sweep) -> None:
    """Print what is known of all runs, and write ``curves.csv`` of those that are finished."""
    members = sweep.members()
    records = {m: m.folder.read() if m.begun() else {} for m in members}
    first = ("options", "seed") if any(sweep.sets) else ("seed",)
    rows = [((m.set_name, str(m.seed))[-len(first) :], _row(r)) for m, r in records.items()]
    columns = (*first, "status", "return", "steps", "wall time")
    print_table(columns, [(*names, *row) for names, row in rows], whole=first)
    pairs = {}
    for name in dict.fromkeys(m.set_name for m in members):
        means = [_mean(records[m]) for m in members if m.set_name == name]
        means = [mean for mean in means if math.isfinite(mean)]
        if means:
            found = bootstrap_iqm([means])
            pairs[f"interquartile mean {name}".rstrip()] = (
                f"{found.value:.1f} [{found.low:.1f}, {found.high:.1f}] over {len(means)} seeds "
                "(95 % bootstrap interval)"
            )
    curves = _write_curves(sweep, [m for m in members if records[m].get("status") == "finished"])
    if curves is not None:
        pairs["learning curves"] = f"{curves}; to draw: rlox plot {shlex.quote(str(sweep.path))}"
    print_pairs({**pairs, "sweep folder": str(sweep.path)})


def _mean(record: Mapping[str, Any]) -> float:
    return float((record.get("evaluation") or {}).get("mean", math.nan))


def _row(record: Mapping[str, Any]) -> tuple[str, str, str, str]:
    mean, seconds = _mean(record), record.get("training_seconds")
    std = float((record.get("evaluation") or {}).get("std", math.nan))
    return (
        record.get("status", "not begun"),
        f"{mean:.1f} ± {std:.1f}" if math.isfinite(mean) else "-",
        f"{record.get(step_unit_of(record), 0):,}",
        "-" if seconds is None else f"{seconds:.1f} s",
    )


def _write_curves(sweep: Sweep, finished: Sequence[Member]) -> Path | None:
    """Write the returns over the training, with their interval over seeds.

    Nothing is written if the runs log no such metric.
    """
    try:
        metric = default_metric(m.folder.path for m in finished)
        groups = group_runs(((m.set_name or None, m.folder.path) for m in finished), metric)
        tables = [(group.label, *aggregate(group.curves)) for group in groups]
    except RunError:
        return None
    if not tables:
        return None
    path = sweep.path / "curves.csv"
    with open_regular(path, "w") as file:
        writer = csv.writer(file)
        # one algorithm's runs are all counted in the same unit
        unit = groups[0].curves[0].unit
        writer.writerow(("label", unit, "interquartile_mean", "low", "high"))
        for label, steps, found in tables:
            columns = (steps, found.value, found.low, found.high)
            rows = zip(*(column.round(3).tolist() for column in columns), strict=True)
            writer.writerows((label, *row) for row in rows)
    return path
