"""Groups of options: the table names options that there are, and every group has some."""

from rlox import registry
from rlox.cli.flags import all_fields
from rlox.config.model import GROUPS, NAMES, group_of

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
