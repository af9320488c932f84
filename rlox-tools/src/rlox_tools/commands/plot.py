"""``rlox plot``: learning curves of runs and sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rlox.cli.output import print_pairs, print_table, print_warning

from rlox_tools.analysis import XAxis, default_metric, group_runs, has_values
from rlox_tools.commands import RUNS, labelled_runs, maker_of

CAPTION = (
    "Interquartile mean over runs with its 95 % bootstrap interval (Agarwal et al. 2021); thin "
    "lines are single runs."
)


def plot_command(
    runs: Annotated[
        list[str],
        typer.Argument(
            help=f"{RUNS}; LABEL=FOLDER names its runs; else their options in the sweep do, or the "
            "algorithm."
        ),
    ],
    metric: Annotated[
        str | None,
        typer.Option(
            help="What to draw, as eval/mean_reward for the evaluations; left out: mean_reward, or "
            "eval/mean_reward if the runs learn from datasets.",
            metavar="NAME",
        ),
    ] = None,
    x: Annotated[XAxis, typer.Option(help="What to draw it over.")] = "steps",
    out: Annotated[
        list[Path] | None,
        typer.Option(
            help="File to write, .png, .svg, .pdf or .html; repeatable; left out: curves.png.",
            metavar="FILE",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading.", metavar="TEXT")] = None,
) -> None:
    """Draw learning curves, those of several seeds as one line with a confidence band."""
    from rlox_tools.figures import draw, final_scores, require_format, write_figure

    files = out or [Path("curves.png")]
    for file in files:
        require_format(file)
    labelled = list(labelled_runs(runs))
    metric = metric or default_metric(run for _, run in labelled)
    empty = [run for _, run in labelled if not has_values(run, metric)]
    if len(empty) < len(labelled):  # otherwise the first error names the problem
        for run in empty:
            print_warning(f"run '{run}' has no value of '{metric}', or none yet; it is left out")
        labelled = [(label, run) for label, run in labelled if run not in empty]
    groups = group_runs(labelled, metric, x)
    figure = draw(groups, metric=metric, x=x, title=title)
    for file in files:
        write_figure(figure, file, groups, CAPTION)
    columns = ("env", "label", "runs", "at", "score")
    print_table(columns, final_scores(groups), whole=columns)
    print_pairs({"written": ", ".join(map(str, files))})


make_command = maker_of(plot_command)
