"""Types and groups of the options: stubs have every option, and so have signatures."""

import inspect
import runpy
from functools import cache
from pathlib import Path
from typing import get_type_hints

import pytest
import rlox
from pydantic import TypeAdapter
from rlox import registry
from rlox.cli.flags import all_fields
from rlox.config.model import GROUPS, NAMES, group_of
from rlox.registry.families import ALGORITHMS
from rlox.registry.table import algorithm_class, config_class
from small_algorithms import ALGORITHMS as SMALL
from small_algorithms import build

ROOT = Path(__file__).parents[1]
BUILT = [row for row in ALGORITHMS if row.registered]


@cache
def stub(family):
    """Return the classes of the stub that a family's build hook writes."""
    script = runpy.run_path(str(ROOT / "rlox-core" / "option_types.py"))
    found = {}
    text = script["option_types"](ROOT / f"rlox-{family}")
    exec(compile(text, "option_types.pyi", "exec", dont_inherit=True), found)
    return found


@pytest.mark.parametrize("row", BUILT, ids=lambda row: row.name)
def test_a_stub_has_every_option_once_with_a_type_of_its_default(row):
    """And ``make`` takes them together with the constructor's arguments."""
    options = get_type_hints(stub(row.extra)[f"{row.class_name}Options"])
    arguments = get_type_hints(stub(row.extra)[f"{row.class_name}Arguments"])
    fields = config_class(row.name).model_fields
    cls = algorithm_class(row.name)
    given = {*list(inspect.signature(cls.__init__).parameters)[1:-1], *cls.arguments}
    assert options.keys() == fields.keys() - given
    assert arguments.keys() == {*fields, *given, "log_dir"} - {"env", "env_id"}
    for name, field in fields.items():
        TypeAdapter(arguments[name]).validate_python(field.default, strict=True)


def test_families_share_the_build_hook_of_the_template():
    """Each has a copy, as a source distribution has nothing beside it."""
    wanted = (ROOT / "_template/rlox-newfamily/hatch_build.py").read_text("utf-8")
    for family in sorted({row.extra for row in BUILT}):
        assert (ROOT / f"rlox-{family}/hatch_build.py").read_text("utf-8") == wanted
        assert "[tool.hatch.build.hooks.custom]" in (
            ROOT / f"rlox-{family}/pyproject.toml"
        ).read_text("utf-8")


@pytest.mark.parametrize("name", rlox.list_algorithms())
def test_a_signature_shows_every_option_with_its_default(name):
    """``help`` and notebooks do not end at ``**config_kwargs``."""
    shown = inspect.signature(algorithm_class(name)).parameters
    for option, field in config_class(name).model_fields.items():
        assert option in shown
        if shown[option].kind is inspect.Parameter.KEYWORD_ONLY and option != "env":
            assert shown[option].default == field.default


@pytest.mark.parametrize("name", SMALL)
def test_arguments_are_attributes(name):
    """Those of the documents and all options, and nothing else is."""
    cls = algorithm_class(name)
    names = {*cls.arguments, *config_class(name).model_fields} - {"env"}  # which is env_id
    with build(name) as made:
        assert [argument for argument in names if not hasattr(made, argument)] == []
        options = made.config.to_dict()
        assert (made.seed, made.env_id) == (options["seed"], made.env_source)
        with pytest.raises(AttributeError, match="n_env_steps"):
            made.n_env_steps  # noqa: B018


FIELDS = {
    name: field
    for algorithm in registry.list_algorithms()
    for name, (field, _) in all_fields(registry.config_class(algorithm)).items()
}


def test_named_options_exist():
    """An option that was renamed or removed leaves no name behind."""
    assert [n for names in NAMES.values() for n in names if n not in FIELDS] == []


def test_options_are_where_a_user_looks_for_them():
    """One of each group; most are about learning."""
    wanted = {
        "seed": "run",
        "env_kwargs": "env",
        "frame_stack": "env",
        "learning_rate": "learning",
        "gamma": "learning",
        "hidden": "network",
        "recurrent": "network",
        "torch_threads": "speed",
        "device": "speed",
    }
    assert {name: group_of(name, FIELDS[name]) for name in wanted} == wanted
    assert {group_of(name, field) for name, field in FIELDS.items()} == set(GROUPS)
