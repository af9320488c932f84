"""Scripts of ``examples``, one for every algorithm, and notebooks: each runs."""

import ast
import json
import runpy
import sys
from pathlib import Path

import matplotlib as mpl
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


NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))

QUICK_NOTEBOOKS = ("first-training", "own-loss")


def show(path):
    """Run a notebook's cells, and return what each shows: the value of its last expression."""
    namespace = {"__name__": "__main__"}
    shown = []
    for number, cell in enumerate(json.loads(path.read_text("utf-8"))["cells"]):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        name = f"{path.name}, cell {number}"
        exec(compile(tree, name, "exec"), namespace)  # the notebook's own code
        if last is not None:
            code = compile(ast.Expression(last.value), name, "eval")
            shown.append(eval(code, namespace))
    return shown


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path, id=path.stem, marks=[] if path.stem in QUICK_NOTEBOOKS else pytest.mark.slow
        )
        for path in NOTEBOOKS
    ],
)
def test_a_notebook_runs(path, tmp_path, monkeypatch, capsys):
    """From the top, in an empty folder; and it is stored without what it showed last."""
    monkeypatch.chdir(tmp_path)
    with mpl.rc_context({"backend": "agg"}):
        shown = show(path)
    assert shown
    if path.stem == "own-env":
        before, after = shown[-1]
        assert after > before
        assert "shape" in capsys.readouterr().out
    cells = json.loads(path.read_text("utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


def test_every_notebook_is_listed():
    """The page of the documentation names them all."""
    page = (Path(__file__).parents[1] / "docs/notebooks/index.md").read_text("utf-8")
    assert len(NOTEBOOKS) >= 4
    assert [path.name for path in NOTEBOOKS if path.name not in page] == []
