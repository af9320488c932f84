"""Pictures, scores and tables of the home page and the gallery."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from rlox.config.presets import list_presets
from rlox.families import ALGORITHMS, AlgorithmRow

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "docs" / "_ext")]

import capabilities  # noqa: E402  # beside the documentation, not installed
import pictures  # noqa: E402

README = (ROOT / "README.md").read_text(encoding="utf-8")
GALLERY = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
REGISTERED = [row for row in ALGORITHMS if row.registered]


@pytest.mark.parametrize("row", REGISTERED, ids=lambda row: row.name)
def test_the_table_says_what_the_algorithm_takes(row: AlgorithmRow) -> None:
    """Otherwise run ``python docs/_ext/capabilities.py``."""
    assert "| " + " | ".join(capabilities.cells(row)) + " |" in README.splitlines()


def test_the_table_has_no_other_algorithms() -> None:
    """Nothing stays that is gone."""
    start, end = (README.index(mark) for mark in capabilities.MARKS)
    assert (
        len(README[start:end].splitlines()) == len(REGISTERED) + 5
    )  # with mark, empty lines and head


@pytest.mark.parametrize("film", pictures.GALLERY_FILMS, ids=lambda film: film.name)
def test_films_show_policies_that_learnt(film: pictures.Film) -> None:
    """The noted score is within the preset's tolerance, and is the one on the page."""
    noted = json.loads(pictures.FILMS.read_text(encoding="utf-8"))[film.name]
    [preset] = [p for p in list_presets(film.algorithm, film.env) if p.name == film.preset]
    assert (noted["algorithm"], noted["env"]) == (film.algorithm, film.env)
    assert noted["env_steps"] == preset.steps
    assert noted["mean_return"] >= preset.score - preset.tolerance
    command = f"rlox train {film.algorithm} --env {film.env} --preset {film.preset}"
    assert f"gallery/{film.name}.gif) | `{command}` | {noted['mean_return']:.1f} |" in GALLERY


def test_pictures_are_small_and_there() -> None:
    """Those of both pages are all that are kept; 1 MB each at most, and 6 MB together."""
    shown = {ROOT / path for path in re.findall(r"\((docs/gallery/\S+)\)", README)}
    shown |= {ROOT / "docs" / path for path in re.findall(r"\((gallery/\S+)\)", GALLERY)}
    kept = {path for path in pictures.GALLERY.iterdir() if path.suffix in {".gif", ".png"}}
    assert shown == kept
    sizes = [path.stat().st_size for path in kept]
    assert max(sizes) < 1e6
    assert sum(sizes) < 6e6


def test_speeds_on_the_page_are_the_committed_ones() -> None:
    """So are those that the chart's description names."""
    for name, ratio in pictures.speeds():
        training, peer = name.split(": ")
        numbers = " | ".join(f"{ratio[key]:.1f}" for key in ("median", "min", "max"))
        assert f"| {training} | {peer} | {numbers} |" in GALLERY
        named = f"{training.partition(',')[0]} {ratio['median']:.1f}"
        assert named in README or f"{ratio['median']:.1f} times as {peer.split()[0]}" in README
