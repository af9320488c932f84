"""Tests of ``rlox plot``."""

import json
import re
import struct
from pathlib import Path

import pytest


@pytest.mark.usefixtures("trained")
def test_plot_draws_groups_into_every_format(run):
    """Lines, bands and a legend with the number of runs; the table has the last points."""
    pytest.importorskip("matplotlib")
    outs = [f"out/curves.{suffix}" for suffix in ("png", "svg", "html", "pdf")]
    flags = [part for out in outs for part in ("--out", out)]
    result = run("plot", "runs/sweep", "fewer updates=runs/other", *flags, "--title", "a <title>")
    assert result.code == 0, result.err
    rows = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "CartPole-v1 counting 3 80 10 [10, 10]" in rows
    assert "CartPole-v1 fewer updates 1 80 10" in rows
    png = Path("out/curves.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert struct.unpack(">I", png[16:20])[0] > 900  # pixels
    svg = Path("out/curves.svg").read_text(encoding="utf-8")
    for text in ("counting (3 runs)", "fewer updates (1 run)", "env steps", "CartPole-v1"):
        assert text in svg
    page = Path("out/curves.html").read_text(encoding="utf-8")
    assert "<td>10 [10, 10]</td>" in page
    assert "a &lt;title&gt;" in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)  # needs no network
    assert Path("out/curves.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.usefixtures("trained")
def test_run_without_values_is_left_out(run):
    """As one that has only begun, in a sweep of others; the picture names unequal lengths."""
    pytest.importorskip("matplotlib")
    Path("runs/sweep/seed-1/metrics.jsonl").write_text("", encoding="utf-8")
    log = Path("runs/sweep/seed-2/metrics.jsonl")
    rows = log.read_text(encoding="utf-8").splitlines(keepends=True)
    log.write_text("".join(row for row in rows if json.loads(row)["step"] <= 40), encoding="utf-8")
    result = run("plot", "runs/sweep", "--out", "curves.svg")
    assert result.code == 0, result.err
    left_out = "run 'runs/sweep/seed-1' has no value of 'mean_reward', or none yet; it is left out"
    assert result.err == f"warning: {left_out}\n"
    assert "CartPole-v1 counting 2 40" in " ".join(result.out.split())
    picture = Path("curves.svg").read_text(encoding="utf-8")
    assert "counting (2 runs, the shortest to 40, the longest to 80)" in picture
    alone = run("plot", "runs/sweep/seed-1")
    assert alone.err == "error: run 'runs/sweep/seed-1' has logged no train row\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "missing argument 'runs'"),
        (("none",), "'none' is not a folder; name a run folder, a sweep or a folder of them"),
        (("label=none",), "'none' is not a folder"),
        (
            ("runs/sweep", "--metric", "mean_rewrd"),
            "has no metric 'mean_rewrd'; did you mean 'mean_rew",
        ),
        (
            ("runs/sweep", "--out", "curves.gif"),
            "a plot is written as .png, .svg, .pdf, .html, got",
        ),
        (("runs/sweep", "--x", "days"), "invalid value for '--x'"),
    ],
)
@pytest.mark.usefixtures("trained")
def test_wrong_plot_is_one_line(run, arguments, message):
    """Nothing is written."""
    before = sorted(Path.cwd().iterdir())
    result = run("plot", *arguments)
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert message in result.err
    assert result.err.count("\n") == 1
    assert sorted(Path.cwd().iterdir()) == before


@pytest.mark.usefixtures("trained")
def test_missing_matplotlib_names_the_extra(run, monkeypatch):
    """The remedy is a pip command."""
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    result = run("plot", "runs/other")
    assert result.code == 2
    assert 'pip install "rlox-core[plot]"' in result.err
