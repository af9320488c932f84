"""Tests of :mod:`rlox.registry.table`: distributions written to disk, and their broken parts."""

import sys
from types import ModuleType

import pytest
from rlox import registry
from rlox.algorithm import make_callbacks, make_logger
from rlox.callbacks import Callback
from rlox.envs.make import make_vec_env
from rlox.errors import (
    LoggerError,
    MissingDependencyError,
    PluginConflictError,
    PluginError,
    PluginWarning,
    UnknownNameError,
)
from rlox.logging import LoggerCallback
from rlox.registry.table import HOOKS, Registration, Registry, load_plugins

ALGORITHM = """
import rlox

@rlox.hookimpl
def rlox_algorithms():
    yield rlox.AlgorithmSpec("{name}", "A test.", "nowhere:Config", "nowhere:Class")
"""

BROKEN = {
    "import": ("import no_such_module_anywhere", "ModuleNotFoundError: No module named"),
    "syntax": ("def f(:", "SyntaxError: "),
    "hook": (
        "import rlox\n\n@rlox.hookimpl\ndef rlox_algorithms():\n    raise OSError('fire')\n",
        "OSError: fire",
    ),
    "misspelt hook": (
        "import rlox\n\n@rlox.hookimpl\ndef rlox_algoritms():\n    return []\n",
        "PluginValidationError: unknown hook 'rlox_algoritms'",
    ),
    "wrong type": (
        "import rlox\n\n@rlox.hookimpl\ndef rlox_loggers():\n"
        "    yield rlox.CallbackSpec('a', 'b', 'c:d')\n",
        "TypeError: rlox_loggers must yield LoggerSpec, got CallbackSpec(",
    ),
    "late wrong type": (
        "import rlox\n\n@rlox.hookimpl\ndef rlox_loggers():\n"
        "    yield rlox.LoggerSpec('lost', 'b', 'c:d')\n    yield 3\n",
        "TypeError: rlox_loggers must yield LoggerSpec, got 3",
    ),
    "forgotten mark": (
        "def rlox_algorithms():\n    return []\n\ndef rlox_loggers():\n    return []\n",
        "PluginError: mark rlox_algorithms, rlox_loggers with @rlox.hookimpl to register anything",
    ),
    "one forgotten mark": (
        "import rlox\n\n@rlox.hookimpl\ndef rlox_algorithms():\n    return []\n\n"
        "def rlox_loggers():\n    return []\n",
        "PluginError: mark rlox_loggers with @rlox.hookimpl to register anything",
    ),
    "no hook": (
        "import rlox\n",
        "PluginError: it registers nothing; implement a hook, such as rlox_algorithms, with "
        "@rlox.hookimpl",
    ),
    "none": (
        "import rlox\n\n@rlox.hookimpl\ndef rlox_loggers():\n    pass\n", "TypeError: ",
    ),
}  # fmt: skip


def names(registrations):
    """Return the names that were registered."""
    return {registration.spec.name for registration in registrations}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_plugin_is_a_warning_and_the_rest_loads(install, fault):
    """One plugin's failure names it and takes nothing else down."""
    code, reason = BROKEN[fault]
    install("rlox-aaa", code)
    install("rlox-zzz", ALGORITHM.format(name="good"))
    with pytest.warns(PluginWarning) as caught:
        found = load_plugins()
    (message,) = (str(w.message) for w in caught)
    assert message.startswith(f"rlox plugin 'rlox-aaa' failed: {reason}")
    assert message.endswith("; the rest of rlox works without it")
    assert {"good", "gymnasium"} <= names(found)
    assert "lost" not in names(found)


def test_broken_plugin_is_an_error_when_strict(install, monkeypatch):
    """With RLOX_PLUGINS_STRICT=1 the first failure stops."""
    code, reason = BROKEN["hook"]
    install("rlox-aaa", code)
    monkeypatch.setenv("RLOX_PLUGINS_STRICT", "1")
    with pytest.raises(PluginError) as caught:
        load_plugins()
    assert str(caught.value).startswith(f"rlox plugin 'rlox-aaa' failed: {reason}")
    assert caught.value.__cause__ is not None


def test_one_entry_point_name_of_two_distributions_is_a_conflict(install):
    """Neither is dropped silently; the error names both."""
    install("rlox-one", ALGORITHM.format(name="one"), entry_point="same")
    install("rlox-two", ALGORITHM.format(name="two"), entry_point="same")
    with pytest.raises(PluginConflictError) as caught:
        load_plugins()
    text = str(caught.value)
    assert "'rlox-one'" in text
    assert "'rlox-two'" in text
    assert text.endswith("both name their rlox plugin 'same'; uninstall one of them")


def test_rlox_plugins_limits_what_is_loaded(install, monkeypatch):
    """Only the plugins named are loaded, and core's own always."""
    install("rlox-one", ALGORITHM.format(name="one"))
    install("rlox-two", ALGORITHM.format(name="two"))
    install("rlox-bad", "import no_such_module_anywhere")
    monkeypatch.setenv("RLOX_PLUGINS", " rlox-two ,")
    found = load_plugins()
    assert {r.distribution for r in found} == {"rlox-core", "rlox-two"}
    monkeypatch.setenv("RLOX_PLUGINS", "")
    assert {r.distribution for r in load_plugins()} == {"rlox-core"}


def test_rlox_plugins_names_installed_plugins(install, monkeypatch):
    """A misspelt name would load core alone."""
    install("rlox-pets", ALGORITHM.format(name="pets"))
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-core,rlox-pet")
    with pytest.raises(UnknownNameError) as caught:
        load_plugins()
    message = "RLOX_PLUGINS names the plugin 'rlox-pet', which is not installed; did you mean"
    assert str(caught.value).startswith(f"{message} 'rlox-pets'")


def test_a_helper_called_like_a_hook_is_none(install):
    """Beside a hook, a function of another name needs no mark."""
    install("rlox-pets", ALGORITHM.format(name="pets") + "\ndef rlox_help():\n    pass\n")
    assert "pets" in names(load_plugins())


class NoFolder(LoggerCallback):
    """A logger that takes no folder."""


class AsksForMore(Callback):
    """A callback that needs an argument."""

    def __init__(self, threshold): ...


def returns_three(*args, **kwargs):
    """Return what is nothing that rlox knows."""
    return 3


def refuses(log_dir):
    """Fail as a tracking service does."""
    raise LoggerError("nobody is logged in")


def fails(log_dir):
    """Fail as a bug does."""
    raise TypeError("a bug of the plugin")


@pytest.fixture
def plant(monkeypatch):
    """Return a function that registers objects of this module as parts called "mine"."""
    module = ModuleType("planted")
    vars(module).update({each.__name__: each for each in (NoFolder, AsksForMore, returns_three)})
    vars(module).update(refuses=refuses, fails=fails, number=3)
    monkeypatch.setitem(sys.modules, "planted", module)

    def plant(hook, **fields):
        spec = HOOKS[hook](name="mine", summary="Mine.", **fields)
        planted = Registry([Registration(spec, hook, "rlox-mine")])
        # the registry last: what is first imported here must not keep the planted one
        for user in ("replay.buffers", "algorithm", "registry.table", "registry"):
            monkeypatch.setattr(f"rlox.{user}.get_registry", lambda: planted)

    return plant


USES = {
    "rlox_loggers": lambda: make_logger("mine", "folder"),
    "rlox_callbacks": lambda: make_callbacks("mine", "folder"),
    "rlox_env_backends": lambda: make_vec_env("CartPole-v1", backend="mine"),
}


@pytest.mark.parametrize(
    ("hook", "factory", "reason"),
    [
        ("rlox_loggers", "planted:NoFolder",
         "'planted:NoFolder' must be callable with (log_dir): too many positional arguments"),
        ("rlox_loggers", "planted:number",
         "'planted:number' must be callable with (log_dir): 3 is not a callable object"),
        ("rlox_loggers", "planted:returns_three",
         "'planted:returns_three' must return a rlox.logging.LoggerCallback, got int"),
        ("rlox_loggers", "planted:nothing",
         "module 'planted' has no 'nothing' (reference 'planted:nothing')"),
        ("rlox_loggers", "planted", "reference must look like 'module:name', got 'planted'"),
        ("rlox_callbacks", "planted:AsksForMore",
         "'planted:AsksForMore' must be callable with (), or with (log_dir) if in_folder is "
         "set: missing a required argument: 'threshold'"),
        ("rlox_callbacks", "planted:returns_three",
         "'planted:returns_three' must return a rlox.callbacks.Callback, got int"),
        ("rlox_env_backends", "planted:returns_three",
         "'planted:returns_three' must return a rlox.protocols.VecEnv, got int"),
    ],
)  # fmt: skip
def test_a_broken_part_is_reported_with_kind_name_and_distribution(plant, hook, factory, reason):
    """And with what is expected of it."""
    plant(hook, factory=factory)
    with pytest.raises(PluginError) as caught:
        USES[hook]()
    kind = {"rlox_loggers": "logger", "rlox_callbacks": "callback"}.get(hook, "env backend")
    assert str(caught.value) == (
        f"the {kind} 'mine' of the distribution 'rlox-mine' is broken: {reason}"
    )


@pytest.mark.parametrize("hook", USES)
def test_a_missing_module_is_reported_with_what_to_install(plant, hook):
    """The distribution is, as far as rlox knows, what lacks it."""
    plant(hook, factory="no_such_module_anywhere:Class")
    with pytest.raises(MissingDependencyError) as caught:
        USES[hook]()
    assert "'mine' needs the module 'no_such_module_anywhere'" in str(caught.value)
    assert str(caught.value).endswith('run: pip install "rlox-mine"')


@pytest.mark.parametrize(
    ("factory", "error"), [("planted:refuses", LoggerError), ("planted:fails", TypeError)]
)
def test_what_a_factory_raises_goes_on_as_it_is(plant, factory, error):
    """Its traceback leads to the plugin's code."""
    plant("rlox_loggers", factory=factory)
    with pytest.raises(error, match=r"nobody is logged in|a bug of the plugin"):
        make_logger("mine", "folder")


@pytest.mark.parametrize(
    ("find", "field", "base"),
    [
        (registry.config_class, "config", "rlox.Config"),
        (registry.algorithm_class, "factory", "rlox.Algorithm"),
    ],
)
def test_an_algorithms_classes_are_checked(plant, find, field, base):
    """Both are used long after they were found."""
    plant("rlox_algorithms", config="planted:NoFolder", factory="planted:NoFolder")
    with pytest.raises(PluginError) as caught:
        find("mine")
    assert str(caught.value).startswith(
        f"the algorithm 'mine' of the distribution 'rlox-mine' is broken: {field} must name a "
        f"subclass of {base}, but 'planted:NoFolder' is <class "
    )
