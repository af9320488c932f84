"""Scripts of ``examples``: one for every algorithm, and each trains."""

import runpy
import sys
from pathlib import Path

import pytest
import rlox
from rlox.kernels import installed
from rlox.registry.families import ALGORITHMS

EXAMPLES = Path(__file__).parents[1] / "examples"
QUICK = ("ppo", "impala", "dqn", "mappo", "qmix", "iql", "fqe", "grpo", "dpo")
"""One of each kind; ``nox -s slow`` runs the others."""
SMALL = {"dreamer_v3": 1_100, "rl8_ppo": 8_192, "rl8_recurrent_ppo": 8_192}
"""Steps that a script needs at least to learn at all, where 64 are too few."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(row.name, marks=[] if row.name in QUICK else pytest.mark.slow)
        for row in ALGORITHMS
    ],
)
def test_an_example_trains(name, monkeypatch, tmp_path, capsys):
    """From the command line, with few steps; it prints one number that says how well."""
    if name == "hybrid_ppo" and not installed("rlox_candle"):
        pytest.skip("rlox-candle is not installed")
    script = EXAMPLES / f"{name}.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", [str(script), "--steps", str(SMALL.get(name, 64))])
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out.strip().splitlines()
    assert float(printed[-1].rpartition(": ")[2]) == pytest.approx(0, abs=1e5)


def test_every_registered_algorithm_has_an_example():
    """Those of rlox; other people's plugins have their own."""
    registered = {row.name for row in ALGORITHMS if row.registered} & set(rlox.list_algorithms())
    assert sorted(name for name in registered if not (EXAMPLES / f"{name}.py").exists()) == []


def test_the_page_names_every_script():
    """Of the examples, the older ones too."""
    page = (EXAMPLES.parent / "docs/tutorials/examples.md").read_text("utf-8")
    scripts = {path.name for path in EXAMPLES.glob("*.py")}
    assert sorted(name for name in scripts if name not in page) == []
