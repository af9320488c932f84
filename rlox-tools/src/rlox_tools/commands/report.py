"""``rlox report``: one page of HTML about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rlox.cli.output import print_pairs
from rlox.errors import ConfigError
from rlox.files import write_atomically

from rlox_tools.commands import RUNS, labelled_runs, maker_of

MEGABYTE = 2**20


def report_command(
    runs: Annotated[
        list[str],
        typer.Argument(
            help=f"{RUNS}; LABEL=FOLDER names its runs; else their options in the sweep do, or the "
            "algorithm with the options that differ."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.", metavar="FILE.html")] = Path(
        "report.html"
    ),
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Another metric to draw next to the returns of training and evaluations; "
            "repeatable.",
            metavar="NAME",
        ),
    ] = None,
    films: Annotated[
        int,
        typer.Option(
            help="Most megabytes of films in the page, the newest of each run first; 0: none.",
            min=0,
            metavar="MB",
        ),
    ] = 20,
    title: Annotated[str, typer.Option(help="Heading.", metavar="TEXT")] = "Runs",
) -> None:
    """Write one page about runs: curves, evaluations, differing options, timing and films.

    It holds all it shows, and needs no network.
    """
    from rlox_tools.report import report_page

    if out.suffix != ".html":
        raise ConfigError(f"a report is written as .html, got '{out}'")
    named = list(labelled_runs(runs))
    text = report_page(named, metrics=metric or (), title=title, film_bytes=films * MEGABYTE)
    content = text.encode("utf-8", "replace")
    write_atomically(out, content)
    print_pairs({"runs": str(len(named)), "written": f"{out} ({len(content):,} bytes)"})


make_command = maker_of(report_command)
