"""Tests of :mod:`rlox.config.presets`, with a distribution that counts instead of learning."""

import sys

import pytest
import rlox
import yaml
from rlox.config.presets import list_presets, read_presets
from rlox.errors import (
    ConfigError,
    PluginConflictError,
    PluginError,
    UnknownNameError,
)
from rlox.registry.table import config_class

PLUGIN = """
import rlox

@rlox.hookimpl
def rlox_algorithms():
    yield rlox.AlgorithmSpec(
        name="counting", summary="Counts.", config="counting_config:CountingConfig",
        factory="counting_algorithm:CountingAlgorithm",
    )

@rlox.hookimpl
def rlox_presets():
    yield rlox.PresetsSpec("rlox-counting", "Tuned options.", "counting_presets:presets.yaml")
"""

PRESETS = """
shared:
  book: &book {source: a book, score: 9.0, tolerance: 1.0}
presets:
  counting:
    CartPole-v1:
      tuned: {<<: *book, steps: 48, options: {n_envs: 3, n_steps: 5}}
    ALE/*:
      games: {source: a paper, steps: 64, options: {n_envs: 7}}
"""


@pytest.fixture
def folder(install, tmp_path, monkeypatch):
    """Install the distribution, and return the folder of the user's presets."""
    package = tmp_path / "site-packages" / "counting_presets"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "presets.yaml").write_text(PRESETS, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "counting_presets", raising=False)  # of another test
    install("rlox-counting", PLUGIN)
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-counting")
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("RLOX_PRESETS", str(own))
    return own


@pytest.mark.usefixtures("folder")
def test_presets_are_found_by_env_pattern_and_full_name():
    """An id's own come first; one of several envs fits all that its pattern does."""
    assert [p.full_name for p in list_presets("counting")] == ["CartPole-v1/tuned", "games"]
    assert [p.name for p in list_presets(env="ALE/Pong-v5")] == ["games"]
    made = rlox.make("counting", env="CartPole-v1", preset="tuned", n_steps=6)
    assert (made.config.n_envs, made.config.n_steps) == (3, 6)
    assert made.config.preset == "CartPole-v1/tuned"
    # of another env, by its full name; a class of envs is no id
    made = rlox.make("counting", env="Pendulum-v1", preset="CartPole-v1/tuned")
    assert made.config.n_envs == 3


@pytest.mark.usefixtures("folder")
def test_complete_options_need_no_preset(tmp_path, monkeypatch):
    """What a run recorded loads where its preset is not installed; part of it does not."""
    cls = config_class("counting")
    config = cls(preset="CartPole-v1/tuned")
    values = {**config.to_dict(), "preset": "CartPole-v1/gone"}
    assert cls(**values).n_envs == 3
    with pytest.raises(UnknownNameError, match="'CartPole-v1/gone' of counting; did you mean"):
        cls(preset="CartPole-v1/gone", n_envs=3)


def test_user_presets_are_a_folder_of_files(folder):
    """They are listed beside the distributions'; one name in two files is an error."""
    mine = {"presets": {"counting": {"Pendulum-v1": {"mine": {
        "steps": 5, "score": 1.0, "tolerance": 0.5, "source": "me", "options": {"n_envs": 4},
    }}}}}  # fmt: skip
    (folder / "mine.yaml").write_text(yaml.dump(mine), encoding="utf-8")
    made = rlox.make("counting", env="Pendulum-v1", preset="mine")
    assert made.config.n_envs == 4
    (folder / "again.yaml").write_text(yaml.dump(mine), encoding="utf-8")
    with pytest.raises(PluginConflictError, match=r"is in '.*again.yaml' and in '.*mine.yaml'"):
        list_presets()


def test_broken_file_of_the_user_is_named(folder):
    """The error has the file, the preset, the field and the reason."""
    (folder / "bad.yaml").write_text(
        "presets: {counting: {CartPole-v1: {mine: {steps: 0, source: me}}}}", encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=r"bad.yaml' .*CartPole-v1, mine: steps .* greater than"):
        list_presets()


def test_broken_file_of_a_distribution_names_the_plugin(folder):
    """It is the plugin's fault, not the user's."""
    path = folder.parent / "site-packages" / "counting_presets" / "presets.yaml"
    path.write_text("presets: 3", encoding="utf-8")
    with pytest.raises(PluginError, match="distribution 'rlox-counting' is broken"):
        list_presets()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "it is no YAML"),
        ("- 1", "it must be a mapping with the key 'presets'"),
        ("{presets: {}, others: 1}", "it must be a mapping with the key 'presets'"),
        ("presets: {ppo: {a: 3}}", "ppo, a: expected a mapping of names, got int"),
        ("presets: {ppo: {a: {b: 3}}}", "ppo, a, b: expected a mapping of fields, got int"),
        ("presets: {ppo: {a: {b: {steps: 1, source: s}}}}", "one env needs score and tolerance"),
        ("presets: {ppo: {a: {b: {steps: 1, source: s, score: 1}}}}", "belong together"),
        ("presets: {ppo: {a: {b/c: {steps: 1}}}}", "name String should match"),
        ("presets: {ppo: {'*': {b: {steps: 1, source: s, options: {seed: 1}}}}}",
         "a preset sets no seed"),
        ("presets: {ppo: {'*': {b: {steps: 1, source: s, minutes: 1}}}}", "scores and minutes"),
    ],
)  # fmt: skip
def test_wrong_files_are_refused(text, said):
    """One sentence says what is wrong."""
    with pytest.raises(ValueError, match=r".") as raised:
        read_presets(text)
    assert said in str(raised.value)
