"""Tests of :mod:`rlox.registry.table`."""

import re

import pytest
import rlox
from rlox.algorithm import algorithm_class, config_class
from rlox.callbacks import Callback, EvalCallback
from rlox.errors import (
    ConfigError,
    MissingDependencyError,
    PluginConflictError,
    requirement,
)
from rlox.logging import JsonlLogger
from rlox.registry.families import ELSEWHERE
from rlox.registry.specs import AlgorithmSpec, EnvBackendSpec
from rlox.registry.table import Registration, Registry

COUNTING = """
import rlox

@rlox.hookimpl
def rlox_algorithms():
    yield rlox.AlgorithmSpec(
        name="counting", summary="Counts.", paper="https://example.org",
        config="counting_config:CountingConfig",
        factory="counting_algorithm:CountingAlgorithm",
    )
    yield rlox.AlgorithmSpec(
        name="lacking", summary="Needs what is not there.",
        config="counting_config:CountingConfig", factory="no_such_module_anywhere:Class",
    )
    yield rlox.AlgorithmSpec(
        name="offline", summary="Needs a data set.", needs=("dataset",),
        config="counting_config:CountingConfig",
        factory="counting_algorithm:CountingDataset",
    )
"""


@pytest.fixture
def installed(install, monkeypatch):
    """Install a distribution with the counting algorithm, and look at no others."""
    install("rlox-counting", COUNTING)
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-counting")


def backend(name, distribution, priority=50):
    """Return the registration of an env backend."""
    spec = EnvBackendSpec(name, "A test.", "a:b", priority=priority)
    return Registration(spec, "rlox_env_backends", distribution)


@pytest.mark.usefixtures("installed")
def test_make_takes_callbacks_and_logger_by_name(tmp_path):
    """Registered names stand for objects with their defaults."""
    own = Callback()
    algorithm = rlox.make(
        "counting", env="CartPole-v1", callbacks=["eval", own], logger="jsonl", log_dir=tmp_path
    )
    assert isinstance(algorithm.callbacks.callbacks[0], EvalCallback)
    assert algorithm.callbacks.callbacks[1] is own
    assert isinstance(algorithm.logger, JsonlLogger)
    algorithm.logger.close()
    assert (tmp_path / "metrics.jsonl").exists()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": "offline"}, ConfigError, "the algorithm 'offline' needs dataset=..., got none"),
        ({"name": "counting", "env": "CartPole-v1", "logger": ["jsonl", "jsonl"]}, ConfigError,
         "the logger 'jsonl' is named twice"),
        ({"name": "counting", "env": "CartPole-v1", "callbacks": ["timing", "timing"]}, ConfigError,
         "the callback 'timing' is named twice"),
        ({"name": "lacking", "env": "CartPole-v1"}, MissingDependencyError,
         "the algorithm 'lacking' needs the module 'no_such_module_anywhere', which is not "
         'installed; run: pip install "rlox-counting"'),
        ({"name": "ppo", "env": "CartPole-v1"}, MissingDependencyError,
         "the algorithm 'ppo' needs a distribution that is not installed; "
         'run: pip install "rlox-core[onpolicy]"'),
    ],
)  # fmt: skip
def test_make_refuses(arguments, error, message):
    """Every wrong call has one exact message with its remedy."""
    with pytest.raises(error) as caught:
        rlox.make(**arguments)
    assert str(caught.value) == message


@pytest.mark.usefixtures("installed")
def test_a_wrong_call_begins_no_log(tmp_path):
    """No folder, and no run of a tracking service, is left behind."""
    with pytest.raises(ConfigError, match="unknown option 'n_step'"):
        rlox.make("counting", "CartPole-v1", logger="jsonl", log_dir=tmp_path / "runs", n_step=1)
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("installed")
def test_a_logger_that_fails_leaves_no_envs_open(tmp_path, monkeypatch):
    """Nobody else could close them."""
    closed = []
    monkeypatch.setattr(rlox.Algorithm, "close", lambda self: closed.append(self.name))
    (tmp_path / "runs").touch()
    with pytest.raises(FileExistsError):
        rlox.make("counting", "CartPole-v1", logger="jsonl", log_dir=tmp_path / "runs")
    assert closed == ["counting"]


@pytest.mark.usefixtures("installed")
def test_a_logger_that_fails_leaves_no_other_open(tmp_path, monkeypatch):
    """Those named before it have begun."""
    closed = []
    close = rlox.logging.JsonlLogger.close
    monkeypatch.setattr(rlox.logging.JsonlLogger, "close", lambda self: closed.append(close(self)))
    with pytest.raises(TypeError, match="a logger must be"):
        rlox.make("counting", "CartPole-v1", logger=["jsonl", "console", 3], log_dir=tmp_path)
    assert len(closed) == 1


@pytest.mark.usefixtures("installed")
def test_list_spec_and_explain(counting):
    """What is installed can be listed, looked up and read about."""
    assert rlox.list_algorithms() == ["counting", "lacking", "offline"]
    assert rlox.spec("counting").needs == ("env",)
    assert config_class("counting") is counting.CountingConfig
    assert algorithm_class("counting") is counting.CountingAlgorithm
    text = rlox.explain("counting").splitlines()
    assert text[:5] == [
        "counting: Counts.",
        "paper: https://example.org",
        "distribution: rlox-counting",
        "needs: env",
        "options:",
    ]
    assert "  n_envs = 2 [envs] number of envs N (test)" in text


def test_name_in_conflict_is_unusable_and_others_work():
    """Two claimants of a name are both named; no last one wins."""
    registry = Registry([backend("a", "one"), backend("a", "two"), backend("b", "two")])
    message = (
        "the name 'a' (rlox_env_backends) is claimed by the distributions 'one' and 'two'; "
        "uninstall one of them"
    )
    assert registry.conflicts() == [message]
    with pytest.raises(PluginConflictError) as caught:
        registry.get("rlox_env_backends", "a")
    assert str(caught.value) == message
    assert registry.get("rlox_env_backends", "b").distribution == "two"


def test_a_name_twice_in_one_distribution_is_reported_as_such():
    """There is nothing to uninstall."""
    registry = Registry([backend("slow", "one"), backend("slow", "one")])
    assert registry.conflicts() == [
        "the name 'slow' (rlox_env_backends) is registered twice by the distribution 'one'"
    ]


def test_env_backends_are_ordered_and_without_conflicts():
    """A conflict between two backends leaves the others to the automatic choice."""
    registry = Registry(
        [
            backend("low", "one", 0),
            backend("twice", "one", 99),
            backend("twice", "two", 99),
            backend("high", "two", 60),
        ]
    )
    assert [each.spec.name for each in registry.by_priority("rlox_env_backends")] == ["high", "low"]


def test_same_name_under_two_hooks_is_no_conflict():
    """Names are unique per kind."""
    algorithm = Registration(AlgorithmSpec("a", "s", "c:d", "e:f"), "rlox_algorithms", "two")
    registry = Registry([backend("a", "one"), algorithm])
    assert registry.conflicts() == []
    assert registry.names("rlox_algorithms") == ["a"]


@pytest.mark.parametrize(("hook", "name"), ELSEWHERE)
def test_what_is_ours_and_missing_names_its_extra(hook, name):
    """The error has the command that installs it."""
    extra = ELSEWHERE[hook, name]
    with pytest.raises(MissingDependencyError, match=re.escape(requirement(extra))):
        Registry([]).get(hook, name)


def test_a_spec_takes_no_text_for_a_tuple():
    """A forgotten comma would make every part of the text a match."""
    message = r"env_ids of 'a' must be a tuple, got the text 'Bar-v0'; write \('Bar-v0',\)$"
    with pytest.raises(TypeError, match=message):
        EnvBackendSpec("a", "s", "c:d", env_ids="Bar-v0")
