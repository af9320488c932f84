"""The page of references has every paper that code and docs cite, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/references.md"

YEAR = r"((?:19|20)\d\d)\b"
CITED = re.compile(rf"\b((?:D')?[A-Z][\w'-]+(?: et al\.| and [A-Z][\w'-]+)) {YEAR}")
ALONE = re.compile(rf"\b([A-Z][A-Za-z]+) {YEAR}")


def texts() -> Iterator[str]:
    """Yield the sources and pages that cite, each as one line."""
    for pattern in ("rlox-*/src/**/*.py", "rlox-*/src/**/*.rs", "docs/**/*.md"):
        for path in ROOT.glob(pattern):
            if path != PAGE and "generated" not in path.parts:
                lines = path.read_text(encoding="utf-8").splitlines()
                yield " ".join(re.sub(r"^\s*(///?|//!|#)?\s*", "", line) for line in lines)


def entries() -> list[str]:
    """Return who and when of every entry."""
    found = re.findall(r"^- (?:van |de )?(.+?), ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return found


def test_every_paper_is_listed() -> None:
    """By its authors and year."""
    cited = {f"{who} {year}" for text in texts() for who, year in CITED.findall(text)}
    assert len(cited) > 80
    assert sorted(cited - set(entries())) == []


def test_every_entry_is_cited() -> None:
    """An entry by one author too."""
    text = "\n".join(texts())
    cited = {f"{who} {year}" for each in (CITED, ALONE) for who, year in each.findall(text)}
    assert sorted(set(entries()) - cited) == []


def test_entries_are_in_order() -> None:
    """By name and year within each section."""
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    for section in sections:
        names = re.findall(r"^- (.+?), ", section, re.MULTILINE)
        keys = [re.sub(r"^(van|de|D') ?", "", name).lower() for name in names]
        assert keys == sorted(keys), section.splitlines()[0]


def test_equations_of_every_algorithm_are_in_the_math_reference() -> None:
    """Each page that has them is included."""
    folder = ROOT / "docs/reference"
    have = {path.stem for path in folder.glob("algorithms/*.md") if "```text" in path.read_text()}
    included = re.findall(r"literalinclude} algorithms/(\w+).md", (folder / "math.md").read_text())
    without = {"rl8_ppo", "rl8_recurrent_ppo", "hybrid_ppo", "ippo", "online_dpo", "fqe",
               "independent_q", "best_of_n"}  # fmt: skip
    assert have - without == set(included)
