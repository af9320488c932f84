"""Learning-curve figures: one panel per env, one line per group."""

from __future__ import annotations

import html
import io
import math
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

from rlox.errors import ConfigError, import_extra
from rlox.files import write_atomically

from rlox_tools.analysis import Group, XAxis, aggregate

FORMATS = (".png", ".svg", ".pdf", ".html")

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Distinguishable by the colour-blind (Okabe and Ito 2008)."""

INK, MUTED, GRID = "#222222", "#6b6b6b", "#e6e6e6"

HERE = Path(__file__).parent

MOST_THIN_LINES = 12
"""Maximum number of runs in a panel that are also shown one by one."""


def draw(groups: Sequence[Group], *, metric: str, x: XAxis, title: str | None) -> Any:
    """Return a matplotlib figure.

    Raises:
        MissingDependencyError: matplotlib is not installed.
        RunError: runs of a group have no common span.
    """
    matplotlib = import_extra("matplotlib", "rlox plot", "plot")
    from matplotlib.figure import Figure

    envs = list(dict.fromkeys(group.env for group in groups))
    columns = min(len(envs), 3)
    rows = math.ceil(len(envs) / columns)
    with matplotlib.rc_context(fname=HERE / "plots.mplstyle"):
        figure = Figure(
            figsize=(max(4.6 * columns, 6.4), 3.7 * rows + 0.3), dpi=160, layout="constrained"
        )
        panels = figure.subplots(rows, columns, squeeze=False).flat
        colours = {label: i for i, label in enumerate(dict.fromkeys(g.label for g in groups))}
        for env, panel in zip(envs, panels, strict=False):
            _draw_panel(panel, [g for g in groups if g.env == env], colours, x)
            panel.set_title(env, parse_math=False)
            panel.set_ylabel(metric.replace("_", " "), parse_math=False)
        for panel in list(panels):
            panel.set_visible(False)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=13, color=INK, parse_math=False)
    return figure


def _draw_panel(panel: Any, groups: Sequence[Group], colours: dict[str, int], x: XAxis) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    thin = sum(len(group.curves) for group in groups) <= MOST_THIN_LINES
    lines: list[Any] = []
    labels: list[str] = []
    for group in groups:
        colour = COLOURS[colours[group.label] % len(COLOURS)]
        grid, estimate = aggregate(group.curves)
        count = len(group.curves)
        if count > 1:
            panel.fill_between(
                grid, estimate.low, estimate.high, color=colour, alpha=0.18, linewidth=0, zorder=2
            )
            for curve in group.curves if thin else ():
                panel.plot(curve.x, curve.y, color=colour, linewidth=0.6, alpha=0.35, zorder=1)
        labels.append(f"{group.label} ({'1 run' if count == 1 else f'{count} runs'}{ends(group)})")
        lines += panel.plot(
            grid, estimate.value, color=colour, linewidth=2, zorder=3, solid_capstyle="round"
        )
    panel.set_xlabel(_x_label(groups, x))
    panel.xaxis.set_major_locator(MaxNLocator(6))
    if x == "steps":
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.grid(axis="y", color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.margins(x=0.01)
    for text in panel.legend(lines, labels, loc="best", fontsize=9).get_texts():
        text.set_parse_math(False)  # a dollar in a name does not start a formula


def ends(group: Group) -> str:
    """Return in words where the shortest and the longest run end, if their lengths differ much."""
    lasts = [float(curve.x[-1]) for curve in group.curves]
    if min(lasts) > 0.95 * max(lasts):  # the last rows of equal trainings may differ a little
        return ""
    from matplotlib.ticker import EngFormatter

    shortest, longest = map(EngFormatter(sep="", places=0), (min(lasts), max(lasts)))
    return f", the shortest to {shortest}, the longest to {longest}"


def _x_label(groups: Sequence[Group], x: XAxis) -> str:
    if x == "seconds":
        return "seconds of training"
    units = dict.fromkeys(curve.unit for group in groups for curve in group.curves)
    return " or ".join(unit.replace("_", " ") for unit in units)


def final_scores(groups: Sequence[Group]) -> list[tuple[str, str, str, str, str]]:
    """Return env, label, number of runs, last point and the score there, as texts."""
    rows = []
    for group in groups:
        grid, found = aggregate(group.curves)
        score = f"{found.value[-1]:.4g}"
        if len(group.curves) > 1:
            score += f" [{found.low[-1]:.4g}, {found.high[-1]:.4g}]"
        rows.append((group.env, group.label, str(len(group.curves)), f"{grid[-1]:,.0f}", score))
    return rows


def write_figure(figure: Any, path: Path, groups: Sequence[Group], caption: str) -> None:
    """Write a figure in the format of the file's suffix.

    HTML is one file that needs no network: the picture as SVG, and its numbers as a table.

    The suffix must pass :func:`require_format`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != ".html":
        figure.savefig(path, facecolor="white")
        return
    write_atomically(path, _page(svg_of(figure), groups, caption).encode())


def svg_of(figure: Any) -> str:
    """Return a figure as an SVG element."""
    picture = io.StringIO()
    figure.savefig(picture, format="svg", facecolor="white", metadata={"Date": None})
    svg = picture.getvalue()
    return svg[svg.index("<svg") :]


def require_format(path: Path) -> None:
    """Refuse a file with an unknown suffix.

    Raises:
        ConfigError: the suffix is not in :data:`FORMATS`.
    """
    if path.suffix not in FORMATS:
        raise ConfigError(f"a plot is written as {', '.join(FORMATS)}, got '{path}'")


def _page(svg: str, groups: Sequence[Group], caption: str) -> str:
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in final_scores(groups)
    )
    page = Template(HERE.joinpath("plot.html").read_text(encoding="utf-8"))
    return page.substitute(svg=svg, rows=rows, caption=html.escape(caption))
