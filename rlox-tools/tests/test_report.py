"""Tests of ``rlox report``."""

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rlox.errors import RunError
from rlox_tools.analysis import differing_options, read_run

EVIL = '<script>alert("x")</script>'

jinja2 = pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")


class Page(HTMLParser):
    """Tags, attributes and texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.attributes = []
        self.texts = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Keep them."""
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        """Keep what is no space."""
        self.texts += [data.strip()] if data.strip() else []

    def pictures(self):
        """Return all inline pictures as SVG."""
        found = [value or "" for name, value in self.attributes if name == "src"]
        svgs = [uri.partition(",")[2] for uri in found if uri.startswith("data:image/svg+xml")]
        return "".join(base64.b64decode(svg).decode() for svg in svgs)


def report(run, *arguments):
    """Write a report and return its page."""
    result = run("report", *arguments)
    assert result.code == 0, result.err
    return Page(Path("report.html").read_text(encoding="utf-8"))


@pytest.mark.usefixtures("trained")
def test_report_shows_curves_evaluations_options_and_time(run):
    """Seeds of the same options are one line, and nothing is fetched from anywhere."""
    page = report(run, "runs", "--metric", "noise", "--title", "first runs")
    text = " ".join(page.texts)
    assert text.count("first runs") == 2  # title and heading
    svg = page.pictures()
    labels = re.findall(r"counting, n_updates=\d+ \(\d runs?\)", svg)
    assert sorted(set(labels)) == [
        "counting, n_updates=1 (1 run)",
        "counting, n_updates=3 (3 runs)",
    ]
    assert {"mean_reward", "eval/mean_reward", "noise"} <= set(page.texts)
    assert "n_updates" in page.texts  # the column of options that differ
    assert "seed" in page.texts
    assert re.search(r"collect \d+\.\d s \(\d+ %\), learn", text)
    assert re.search(r"collect and learn \d+\.\d s \(\d+ %\), callbacks", text)
    assert text.count("over 2 episodes") == 4
    outside = [v for n, v in page.attributes if n in ("src", "href") and str(v)[:5] != "data:"]
    assert outside == []
    assert "script" not in page.tags


@pytest.mark.usefixtures("trained")
def test_texts_of_strangers_are_shown_as_they_are(run):
    """Of labels, envs, options, statuses, phases and metrics none becomes markup or a formula."""
    folder = Path("runs/sweep/seed-0")
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    record |= {"env": EVIL, "status": EVIL, "seed": EVIL, "algorithm": r"$\foo$ <i>"}
    record |= {"phases": {EVIL: 1.0, "learn": "<b>"}, "total_timesteps": EVIL}
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    (folder / "config.yaml").write_text(json.dumps({EVIL: EVIL}), encoding="utf-8")
    folder.rename(Path("runs", "<img src=x onerror=alert(1)>"))
    page = report(run, "runs", "--title", EVIL)
    assert {"script", "i", "b"}.isdisjoint(page.tags)
    assert page.tags.count("img") == 2  # the two charts
    assert "onerror" not in {name for name, _ in page.attributes}
    assert any(EVIL in text for text in page.texts)
    assert "<script" not in page.pictures()
    assert r"$\foo$ &lt;i&gt;" in page.pictures()


@pytest.mark.usefixtures("trained")
def test_films_are_held_up_to_a_limit(run):
    """The newest of each run comes first; what does not fit is named."""
    for name, size in (("seed-1", 600_000), ("seed-2", 600_000)):
        film = Path("runs/sweep", name, "videos", "step-40-episode-1.mp4")
        film.parent.mkdir()
        film.write_bytes(bytes(size))
    page = report(run, "runs", "--films", 1)
    sources = [str(v) for n, v in page.attributes if n == "src" and str(v)[:11] == "data:video/"]
    assert [len(base64.b64decode(s.partition(",")[2])) for s in sources] == [600_000]
    assert "runs/sweep/seed-1: videos/step-40-episode-1.mp4" in page.texts
    left_out = "Left out, too large for the page: runs/sweep/seed-2/videos/step-40-episode-1.mp4"
    assert left_out in page.texts
    assert "video" not in report(run, "runs", "--films", 0).tags


@pytest.mark.usefixtures("trained")
def test_a_link_in_a_run_is_refused(run):
    """It may lead to a file of the reader, who hands the page on."""
    Path("secret").write_text("secret", encoding="utf-8")
    Path("runs/sweep/seed-1/film.mp4").symlink_to(Path("secret").absolute())
    result = run("report", "runs")
    assert result.code == 2
    assert "is a link" in result.err
    assert not Path("report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "missing argument 'runs'"),
        (("none",), "'none' is not a folder"),
        (("runs", "--out", "report.pdf"), "a report is written as .html, got 'report.pdf'"),
        (("runs", "--films", "-1"), "invalid value for '--films'"),
    ],
)
@pytest.mark.usefixtures("trained")
def test_wrong_report_is_one_line(run, arguments, message):
    """Nothing is written."""
    result = run("report", *arguments)
    assert result.code == 2
    assert message in result.err
    assert result.err.count("\n") == 1
    assert not Path("report.html").exists()


@pytest.mark.usefixtures("trained")
def test_run_folder_is_read_and_shown_in_notebooks(tmp_path):
    """Its options, differences, and a table whose texts are escaped."""
    first, other = read_run(Path("runs/sweep/seed-0")), read_run(Path("runs/other"))
    assert (first.algorithm, first.seed, first.status) == ("counting", "0", "finished")
    assert (first.steps, first.target) == (80, 80)
    assert first.evaluation[2] == 2
    assert differing_options([first, other]) == {"n_updates": ["3", "1"]}
    assert "<th style=" in first._repr_html_()
    assert "over 2 episodes" in first._repr_html_()
    (tmp_path / "run.json").write_text(json.dumps({"env": EVIL}), encoding="utf-8")
    strange = read_run(tmp_path)
    assert "<script" not in strange._repr_html_()
    assert strange.evaluation is None
    (tmp_path / "config.yaml").write_text("a: [", encoding="utf-8")
    with pytest.raises(RunError, match="not valid"):
        read_run(tmp_path)
