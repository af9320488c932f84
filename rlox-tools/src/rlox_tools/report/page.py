"""The page of a report, from a template that escapes every text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rlox.errors import import_extra

from rlox_tools.analysis.learning_curves import default_metric
from rlox_tools.analysis.runs import differing_options, read_run
from rlox_tools.report.content import charts_of, films_of, labels_of, rows_of

__all__ = ["report_page"]

EVALUATIONS = "eval/mean_reward"


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
        metrics: to draw beside the returns of training and evaluations.
        title: heading.
        film_bytes: most bytes of films in the page; others are named.

    Raises:
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
    runs = [read_run(path) for _, path in named]
    labels = labels_of(runs, [label for label, _ in named])
    first = default_metric(run.path for run in runs)
    wanted = [first, EVALUATIONS, *metrics]
    page: str = templates.get_template("page.html").render(
        title=title,
        rows=rows_of(runs, labels),
        charts=charts_of(
            [(label, run.path) for label, run in zip(labels, runs, strict=True)], wanted
        ),
        differences=differing_options(runs),
        films=films_of(runs, film_bytes),
        written=time.strftime("%Y-%m-%d %H:%M"),
    )
    return page
