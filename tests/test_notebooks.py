"""Cells of the notebooks, run one after the other."""

import ast
import json
from pathlib import Path

import matplotlib as mpl
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))

QUICK = ("first-training", "own-loss")


def run(path):
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
        pytest.param(path, id=path.stem, marks=[] if path.stem in QUICK else pytest.mark.slow)
        for path in NOTEBOOKS
    ],
)
def test_a_notebook_runs(path, tmp_path, monkeypatch, capsys):
    """From the top, in an empty folder; and it is stored without what it showed last."""
    monkeypatch.chdir(tmp_path)
    with mpl.rc_context({"backend": "agg"}):
        shown = run(path)
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
