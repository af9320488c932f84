"""Reports: one page of HTML about run folders, from a template that escapes every text."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from rlox.cli.runs.folder import LONGEST
from rlox.errors import RunError, import_extra
from rlox.files import open_regular, require_plain_folder

from rlox_tools.analysis import (
    FILMS,
    Run,
    aggregate,
    default_metric,
    differing_options,
    group_runs,
    has_values,
    read_curve,
    read_run,
)
from rlox_tools.figures import draw, final_scores, svg_of

EVALUATIONS = "eval/mean_reward"

MOST_NAMED = 3
"""Maximum number of options in a label."""


def report_page(
    named: Sequence[tuple[str | None, Path]],
    *,
    metrics: Sequence[str] = (),
    title: str = "Runs",
    film_bytes: int = 0,
) -> str:
    """Return a page of HTML about run folders, which needs no other file and no network.

    Args:
        named: a label, or ``None``, and the folder of each run.
        metrics: metrics to draw next to the returns of training and evaluations.
        title: heading.
        film_bytes: maximum size of the films in the page; further films are named.

    Raises:
        ConfigError: a run's folder holds a link or a named pipe.
        RunError: a file of a run is damaged, or a metric is in no run.
        MissingDependencyError: Jinja2 or matplotlib is not installed.
    """
    jinja2 = import_extra("jinja2", "rlox report", "report")
    folder = Path(__file__).parent
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for _, path in named:
        require_plain_folder(path)
    runs = [read_run(path) for _, path in named]
    labels = labels_of(runs, [label for label, _ in named])
    first = default_metric(run.path for run in runs)
    wanted = [first, EVALUATIONS, *metrics]
    page: str = templates.get_template("report.html").render(
        title=title,
        rows=[row_of(run, label) for run, label in zip(runs, labels, strict=True)],
        charts=charts_of(
            [(label, run.path) for label, run in zip(labels, runs, strict=True)], wanted
        ),
        differences=differing_options(runs),
        films=films_of(runs, film_bytes),
        written=time.strftime("%Y-%m-%d %H:%M"),
    )
    return page


def labels_of(runs: Sequence[Run], given: Sequence[str | None]) -> list[str]:
    """Return a label for each run, equal for runs that differ only in their seed.

    Args:
        runs: all runs of the report.
        given: labels that take precedence.
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


def charts_of(labelled: Sequence[tuple[str, Path]], metrics: Iterable[str]) -> list[dict[str, Any]]:
    """Return the learning curves of each metric, and reasons for missing runs.

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
        # embedded as an image, in which scripts do not run
        svg = svg_of(draw(groups, metric=metric, x="steps", title=None)) if groups else ""
        uri = _data_uri("image/svg+xml", svg.encode()) if svg else ""
        scores = final_scores(groups)
        charts.append({"metric": metric, "svg": uri, "scores": scores, "missing": "; ".join(notes)})
    return charts


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def row_of(run: Run, label: str) -> dict[str, Any]:
    """Return a run's entries in the tables."""
    best, seconds = "-", _seconds(run.record.get("training_seconds"))
    if has_values(run.path, EVALUATIONS):
        curve = read_curve(run.path, EVALUATIONS)
        place = int(curve.y.argmax())
        best = f"{curve.y[place]:.1f} at {curve.x[place]:,.0f}"
    speed = f"{run.steps / seconds:,.0f}" if seconds and run.steps else "-"
    return {"run": run, "label": label, "best": best, "speed": speed, "shares": shares_of(run)}


def shares_of(run: Run) -> dict[str, float]:
    """Return the seconds of each part of a run's training.

    By phase, if the callback ``timing`` measured them; else collecting and learning, computed from
    the logged speed, and the rest.
    """
    phases = run.record.get("phases")
    if isinstance(phases, Mapping):
        return {str(name): _seconds(value) for name, value in phases.items()}
    total = _seconds(run.record.get("training_seconds"))
    name = f"{run.step_unit}_per_second"
    if not total or not has_values(run.path, name):
        return {}
    working = min(float(read_curve(run.path, name, "seconds").x[-1]), total)
    return {"collect and learn": working, "callbacks, evaluations, logging": total - working}


def _seconds(value: Any) -> float:
    fits = isinstance(value, (int, float)) and 0 < value < LONGEST
    return float(value) if fits else 0.0


def films_of(runs: Iterable[Run], limit: int) -> list[dict[str, Any]]:
    """Return the films of runs, with at most ``limit`` bytes of data.

    The newest film of each run comes first, so that each run has one before any has two. A film
    that is left out has an empty ``uri``.
    """
    rounds = zip_longest(*([(run.path, film) for film in run.films()] for run in runs))
    found = []
    for run, film in filter(None, chain.from_iterable(rounds)):
        kind, name = FILMS[film.suffix], film.relative_to(run).as_posix()
        with open_regular(film, "rb") as file:
            content = file.read(limit + 1)
        fits = len(content) <= limit
        limit -= len(content) if fits else 0
        uri = _data_uri(kind, content) if fits else ""
        found.append({"run": run, "name": name, "kind": kind, "uri": uri})
    return found
