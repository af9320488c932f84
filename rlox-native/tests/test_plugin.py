"""The distribution's registrations with rlox; runs where rlox itself is installed too."""

import importlib
from importlib.metadata import entry_points

import pytest
from rlox_native import native_env_ids, native_team_env_ids


def test_entry_point_names_the_plugin():
    """The entry point through which rlox finds the plugin exists."""
    (entry,) = entry_points(group="rlox", name="rlox-native")
    assert entry.value == "rlox_native.plugin"


def test_backend_offers_every_native_env():
    """The registered ids are exactly those that the registered factory builds."""
    pytest.importorskip("rlox.registry.specs")
    plugin = importlib.import_module("rlox_native.plugin")
    backend, teams = plugin.rlox_env_backends()
    assert (teams.name, teams.teams) == ("native_teams", True)
    assert list(teams.env_ids) == native_team_env_ids()
    assert list(backend.env_ids) == native_env_ids()
    module, _, name = backend.factory.partition(":")
    factory = getattr(importlib.import_module(module), name)
    for env_id in backend.env_ids:
        assert factory(env_id, n_envs=2).env_id == env_id
