"""The documentation names what there is: every public name, hook, metric and command."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
import rlox
import rlox.algorithms
import typer
from rlox.cli.app import build_app
from rlox.registry import hookspecs
from rlox.registry.plugins import HOOKS
from rlox_offline.awac import AWACMetrics
from rlox_offline.bc import BCMetrics
from rlox_offline.cql import CQLMetrics
from rlox_offline.fqe import FQEMetrics
from rlox_offline.iql import IQLMetrics
from rlox_offline.td3_bc import TD3BCMetrics
from rlox_offpolicy.metrics import DQNMetrics, SACMetrics, TD3Metrics
from rlox_onpolicy.hybrid_ppo import HybridPPOMetrics

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = DOCS / "reference"
PACKAGES = ("rlox", "rlox_native", "rlox_offline", "rlox_onpolicy", "rlox_offpolicy")
METRICS = (
    AWACMetrics, BCMetrics, CQLMetrics, FQEMetrics, IQLMetrics, TD3BCMetrics, DQNMetrics,
    SACMetrics, TD3Metrics, HybridPPOMetrics,
)  # fmt: skip


def constant(name: str) -> object:
    """Return a constant of the generator, which imports Sphinx and so cannot be imported here."""
    source = (DOCS / "_ext" / "rlox_reference.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise LookupError(name)


def public_modules() -> list[str]:
    """Return the names of all modules that say what is public in them."""
    names = []
    for package in PACKAGES:
        root = importlib.import_module(package)
        names += [package, *(m.name for m in pkgutil.walk_packages(root.__path__, f"{package}."))]
    return [name for name in names if hasattr(importlib.import_module(name), "__all__")]


def headings(page: str) -> list[str]:
    """Return the headings of a page of the reference."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]


def first_cells(page: str) -> set[str]:
    """Return the first cells of all tables of a page of the reference."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def test_every_module_with_public_names_is_in_the_reference() -> None:
    """It has an API page, or belongs to a package that has one; Sphinx checks the names on it."""
    pages = [*constant("API"), *constant("FACADES")]
    hidden = tuple(f"{name}." for name in [*constant("API"), *constant("INTERNAL")])
    internal = constant("INTERNAL")
    missing = [
        name
        for name in public_modules()
        if name not in pages and name not in internal and not name.startswith(hidden)
    ]
    assert not missing


def test_every_algorithm_class_is_in_the_reference() -> None:
    """The page of ``rlox`` has the names of ``rlox.algorithms``."""
    text = (REFERENCE / "api" / "rlox.md").read_text(encoding="utf-8")
    assert [n for n in rlox.algorithms.__all__ if f"`rlox.algorithms.{n}`" not in text] == []


def test_every_api_page_is_listed() -> None:
    """The index of the API has every generated page."""
    index = (REFERENCE / "api" / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"generated/api/([\w.]+)", index)) == set(constant("API"))


def test_names_at_the_top_are_listed_and_no_others() -> None:
    """The page of ``rlox`` has exactly the names of ``rlox.__all__``."""
    text = (REFERENCE / "api" / "rlox.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(\w+) <rlox", text)) == set(rlox.__all__)


@pytest.mark.parametrize("hook", HOOKS)
def test_hook_is_documented_with_its_signature(hook: str) -> None:
    """Each hook has a heading with the exact signature."""
    signature = str(inspect.signature(getattr(hookspecs, hook))).replace("'", "")
    assert f"`{hook}{signature}`" in headings("hooks.md")


def test_every_metric_is_in_the_glossary() -> None:
    """So are the one that the runner adds, and the step."""
    names = {field.name for metrics in METRICS for field in dataclasses.fields(metrics)}
    speeds = {"env_steps_per_second", "gradient_steps_per_second"}
    assert names | speeds | {"step"} <= first_cells("metrics.md")


def test_every_command_has_a_section() -> None:
    """Each command of ``rlox`` has a heading."""
    commands = typer.main.get_command(build_app()).commands
    assert {f"`rlox {name}`" for name in commands} <= set(headings("cli.md"))


def test_every_page_of_a_section_is_in_its_index() -> None:
    """Nothing is written that nobody finds."""
    for index in DOCS.glob("*/index.md"):
        if index.parent.name in ("_build", "decisions"):
            continue
        listed = index.read_text(encoding="utf-8").splitlines()
        pages = {
            str(page.relative_to(index.parent).with_suffix(""))
            for page in index.parent.rglob("*.md")
            if "generated" not in page.parts and page.name != "index.md"
        }
        assert {page for page in pages if not page.startswith("api/")} <= set(listed)
