"""Content of a report: curves, tables, timing and films of runs."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlox.errors import RunError

from rlox_tools.analysis.learning_curves import Group, aggregate, group_runs, has_values, read_curve
from rlox_tools.analysis.runs import FILMS, Run, differing_options, open_in_run
from rlox_tools.figures import draw, final_scores, svg_of

__all__ = [
    "Chart",
    "Film",
    "Row",
    "Share",
    "charts_of",
    "films_of",
    "labels_of",
    "rows_of",
    "shares_of",
]

MOST_NAMED = 3
"""Options that a label names."""


@dataclass(frozen=True)
class Chart:
    """Learning curves of one metric."""

    metric: str
    svg: str
    """A picture as a data URI, in which no script runs; empty if there is none."""
    scores: Sequence[Sequence[str]]
    """Env, label, number of runs, last point and the score there."""
    missing: str
    """Why runs are not in the picture; empty if all are."""


@dataclass(frozen=True)
class Share:
    """A part of a run's time."""

    name: str
    seconds: float
    percent: float


@dataclass(frozen=True)
class Row:
    """One run in the tables."""

    run: Run
    label: str
    best: str
    """The best evaluation during the training."""
    last: str
    """The evaluation at the end."""
    speed: str
    shares: Sequence[Share]


@dataclass(frozen=True)
class Film:
    """A film, with its bytes unless they are left out."""

    run: Path
    name: str
    kind: str
    """Media type."""
    uri: str
    """A data URI; empty if the film is left out."""


def labels_of(runs: Sequence[Run], given: Sequence[str | None]) -> list[str]:
    """Return a label for each run, equal for runs that differ in their seed only.

    Args:
        runs: all of the report.
        given: labels that win.
    """
    found = []
    for run, label in zip(runs, given, strict=True):
        peers = [each for each in runs if (each.algorithm, each.env) == (run.algorithm, run.env)]
        place = [each is run for each in peers].index(True)
        differing = {name: texts[place] for name, texts in differing_options(peers).items()}
        words = [f"{name}={text}" for name, text in differing.items()]
        more = [f"{len(words) - MOST_NAMED} more"] if len(words) > MOST_NAMED else []
        found.append(label or ", ".join([run.algorithm, *words[:MOST_NAMED], *more]))
    return found


def charts_of(labelled: Sequence[tuple[str, Path]], metrics: Iterable[str]) -> list[Chart]:
    """Return the learning curves of each metric that any run has a value of.

    Args:
        labelled: label and folder of each run.
        metrics: names; see :func:`rlox_tools.analysis.read_curve`.

    Raises:
        RunError: a log is damaged.
    """
    charts = []
    for metric in dict.fromkeys(metrics):
        having = [(label, run) for label, run in labelled if has_values(run, metric)]
        missing = len(labelled) - len(having)
        notes = [f"{missing} of {len(labelled)} runs have no value of it"] if missing else []
        groups = []
        for group in group_runs(having, metric):
            try:
                aggregate(group.curves)
                groups.append(group)
            except RunError as error:  # noqa: PERF203  # seeds without a common span
                notes.append(f"{group.label} on {group.env} is left out: {error}")
        charts.append(_chart(metric, groups, "; ".join(notes)))
    return charts


def _chart(metric: str, groups: Sequence[Group], missing: str) -> Chart:
    if not groups:
        return Chart(metric, "", [], missing)
    figure = draw(groups, metric=metric, x="steps", title=None)
    picture = base64.b64encode(svg_of(figure).encode()).decode()
    return Chart(metric, f"data:image/svg+xml;base64,{picture}", final_scores(groups), missing)


def rows_of(runs: Sequence[Run], labels: Sequence[str]) -> list[Row]:
    """Return what the tables say of each run."""
    return [
        Row(run, label, _best(run), _last(run), _speed(run), shares_of(run))
        for run, label in zip(runs, labels, strict=True)
    ]


def _best(run: Run) -> str:
    if not has_values(run.path, "eval/mean_reward"):
        return "-"
    curve = read_curve(run.path, "eval/mean_reward")
    place = int(curve.y.argmax())
    return f"{curve.y[place]:.1f} at {curve.x[place]:,.0f}"


def _last(run: Run) -> str:
    if run.evaluation is None:
        return "-"
    mean, std, episodes = run.evaluation
    return f"{mean:.1f} ± {std:.1f} over {episodes} episodes"


def _speed(run: Run) -> str:
    seconds = _seconds(run.record.get("training_seconds"))
    return f"{run.steps / seconds:,.0f}" if seconds and run.steps else "-"


def shares_of(run: Run) -> list[Share]:
    """Return where the time of a run's training went.

    By phase, if the callback ``timing`` measured them; else collecting and learning, of which the
    log has the speed, and all the rest.
    """
    phases = run.record.get("phases")
    if isinstance(phases, Mapping):
        return _shares({str(name): _seconds(value) for name, value in phases.items()})
    total = _seconds(run.record.get("training_seconds"))
    name = f"{run.step_unit}_per_second"
    if not total or not has_values(run.path, name):
        return []
    seconds = read_curve(run.path, name, "seconds").x[-1]
    working = min(float(seconds), total)
    return _shares(
        {
            "collect and learn": working,
            "callbacks, evaluations, logging": total - working,
        }
    )


def _shares(seconds: Mapping[str, float]) -> list[Share]:
    total = sum(seconds.values())
    return [Share(n, s, 100 * s / total) for n, s in seconds.items()] if total else []


def _seconds(value: Any) -> float:
    fits = isinstance(value, (int, float)) and math.isfinite(value) and value > 0
    return float(value) if fits else 0.0


def films_of(runs: Iterable[Run], limit: int) -> list[Film]:
    """Return the films of runs, of which at most ``limit`` bytes are held.

    The newest of every run come first, so that each run has one before any has two.
    """
    waiting = [(run, run.films()) for run in runs]
    rounds = range(max((len(films) for _, films in waiting), default=0))
    found = []
    for place in rounds:
        for run, films in waiting:
            if place >= len(films):
                continue
            path = films[place]
            name = path.relative_to(run.path).as_posix()
            kind = FILMS[path.suffix]
            with open_in_run(run.path, name) as file:
                content = file.read(limit + 1)
            fits = len(content) <= limit
            limit -= len(content) if fits else 0
            uri = f"data:{kind};base64,{base64.b64encode(content).decode()}" if fits else ""
            found.append(Film(run.path, name, kind, uri))
    return found
