"""The documentation names what there is: every public name, hook, metric and command."""

import dataclasses
import importlib
import importlib.util
import pkgutil
import re
import sys
from pathlib import Path

import pytest
import rlox
import rlox.algorithms
import typer
from rlox.cli.app import build_app
from rlox.registry.families import ALGORITHMS
from rlox.registry.table import HOOKS, get_registry

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = DOCS / "reference"
sys.path.insert(0, str(DOCS / "_ext"))

from api_modules import FACADES, INTERNAL, PATHS, has_names, packages, pages  # noqa: E402  # the generator's own


def metrics():
    """Yield the dataclasses that rlox's own algorithms report."""
    for row in ALGORITHMS:
        for name, value in vars(importlib.import_module(row.module)).items():
            if name.endswith("Metrics") and dataclasses.is_dataclass(value):
                yield value


def public_modules():
    """Return the names of all modules with public names."""
    names = []
    for package in packages():
        if importlib.util.find_spec(package) is None:
            continue
        root = importlib.import_module(package)
        names += [package, *(m.name for m in pkgutil.walk_packages(root.__path__, f"{package}."))]
    specs = {name: importlib.util.find_spec(name) for name in names}
    return [n for n, s in specs.items() if s.origin[-3:] == ".py" and has_names(Path(s.origin))]


def headings(page):
    """Return the headings of a page of the reference."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]


def first_cells(page):
    """Return the first cells of all tables of a page of the reference."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def test_every_module_with_public_names_is_in_the_reference():
    """It has an API page, or belongs to a package that has one; Sphinx checks the names on it."""
    found = pages()
    missing = [
        name
        for name in public_modules()
        if name not in (*found, *FACADES)
        and (top := name.split(".")[1]) not in INTERNAL
        and not top.startswith("_")
        and not name.startswith(tuple(f"{page}." for page in (*found, *PATHS)))
    ]
    assert not missing


@pytest.mark.parametrize("row", ALGORITHMS, ids=lambda row: row.name)
def test_every_algorithm_has_a_page(row):
    """It names the class, and includes the table of its options if it has any."""
    text = (REFERENCE / "algorithms" / f"{row.name}.md").read_text(encoding="utf-8")
    assert f"{{class}}`{row.module}.{row.class_name}`" in text
    assert f"fragments/config-{row.name}.md" in text or not row.registered


def test_names_at_the_top_are_listed_and_no_others():
    """The page of ``rlox`` has exactly the names of ``rlox.__all__``."""
    text = (REFERENCE / "api" / "rlox.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(\w+) <rlox", text)) == set(rlox.__all__)


@pytest.mark.parametrize("hook", HOOKS)
def test_hook_is_documented_with_its_signature(hook):
    """Each hook has a heading with the exact signature."""
    assert f"`{hook}() -> Iterable[{HOOKS[hook].__name__}]`" in headings("hooks.md")


@pytest.mark.parametrize("hook", HOOKS)
def test_hook_is_documented_with_who_implements_it(hook):
    """The distributions of this repository, and the names that each registers if any are given."""
    text = (REFERENCE / "hooks.md").read_text(encoding="utf-8").split(f"\n## `{hook}(")[1]
    stated = re.search(r"^Implemented by (.+?)\.(?: |$)", text.split("\n## ")[0], re.MULTILINE)
    found = re.findall(r"`(rlox-[\w-]+)`(?: \(([^)]+)\))?", stated[1])
    listed = {name: set(re.findall(r"`([\w-]+)`", names)) for name, names in found}
    if "all families" in stated[1]:
        listed |= {f"rlox-{row.extra}": set() for row in ALGORITHMS}
    registered = {}
    for each in get_registry().usable(hook):
        if (DOCS.parent / each.distribution).is_dir():
            registered.setdefault(each.distribution, set()).add(each.spec.name)
    assert listed.keys() == registered.keys()
    named = {name: names for name, names in listed.items() if names}
    assert named == {name: registered[name] for name in named}


def test_every_metric_is_in_the_glossary():
    """So are the one that the runner adds, and the step."""
    names = {field.name for kind in metrics() for field in dataclasses.fields(kind)}
    # the user's own, under the names of their functions; and metrics that an option adds
    names -= {"added", "optional"}
    speeds = {"env_steps_per_second", "gradient_steps_per_second"}
    assert names | speeds | {"step"} <= first_cells("metrics.md")


def test_every_command_has_a_section():
    """Each command of ``rlox`` has a heading."""
    commands = typer.main.get_command(build_app()).list_commands(None)
    assert {f"`rlox {name}`" for name in commands} <= set(headings("cli.md"))
