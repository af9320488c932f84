"""Tests of :mod:`rlox.registry.table`: errors name the plugin."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from rlox import registry
from rlox.api import make_callbacks, make_logger
from rlox.callbacks import Callback
from rlox.envs.make import make_vec_env
from rlox.errors import LoggerError, MissingDependencyError, PluginError
from rlox.logging import LoggerCallback
from rlox.registry.table import HOOKS, Registration, Registry

Plant = Callable[..., None]


class NoFolder(LoggerCallback):
    """A logger that takes no folder."""


class AsksForMore(Callback):
    """A callback that needs an argument."""

    def __init__(self, threshold: float) -> None: ...


def returns_three(*args: Any, **kwargs: Any) -> int:
    """Return what is nothing that rlox knows."""
    return 3


def refuses(log_dir: Any) -> Any:
    """Fail as a tracking service does."""
    raise LoggerError("nobody is logged in")


def fails(log_dir: Any) -> Any:
    """Fail as a bug does."""
    raise TypeError("a bug of the plugin")


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Return a function that registers objects of this module as parts called "mine"."""
    module = ModuleType("planted")
    vars(module).update({each.__name__: each for each in (NoFolder, AsksForMore, returns_three)})
    vars(module).update(refuses=refuses, fails=fails, number=3, compiled=int)
    monkeypatch.setitem(sys.modules, "planted", module)

    def plant(hook: str, **fields: Any) -> None:
        spec = HOOKS[hook](name="mine", summary="Mine.", **fields)
        planted = Registry([Registration(spec, hook, "rlox-mine")])
        for user in ("registry", "registry.table", "api", "replay.buffers"):
            monkeypatch.setattr(f"rlox.{user}.get_registry", lambda: planted)

    return plant


USES: dict[str, Callable[[], Any]] = {
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
def test_a_broken_part_is_reported_with_kind_name_and_distribution(
    plant: Plant, hook: str, factory: str, reason: str
) -> None:
    """And with what is expected of it."""
    plant(hook, factory=factory)
    with pytest.raises(PluginError) as caught:
        USES[hook]()
    kind = {"rlox_loggers": "logger", "rlox_callbacks": "callback"}.get(hook, "env backend")
    assert str(caught.value) == (
        f"the {kind} 'mine' of the distribution 'rlox-mine' is broken: {reason}"
    )


@pytest.mark.parametrize("hook", USES)
def test_a_missing_module_is_reported_with_what_to_install(plant: Plant, hook: str) -> None:
    """The distribution is, as far as rlox knows, what lacks it."""
    plant(hook, factory="no_such_module_anywhere:Class")
    with pytest.raises(MissingDependencyError) as caught:
        USES[hook]()
    assert "'mine' needs the module 'no_such_module_anywhere'" in str(caught.value)
    assert str(caught.value).endswith('run: pip install "rlox-mine"')


@pytest.mark.parametrize(
    ("factory", "error"), [("planted:refuses", LoggerError), ("planted:fails", TypeError)]
)
def test_what_a_factory_raises_goes_on_as_it_is(
    plant: Plant, factory: str, error: type[Exception]
) -> None:
    """Its traceback leads to the plugin's code."""
    plant("rlox_loggers", factory=factory)
    with pytest.raises(error, match=r"nobody is logged in|a bug of the plugin"):
        make_logger("mine", "folder")


def test_a_module_that_fails_is_reported_as_the_plugins(
    plant: Plant, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cause is kept."""
    (tmp_path / "on_fire.py").write_text("raise OSError('fire')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    plant("rlox_loggers", factory="on_fire:Logger")
    with pytest.raises(PluginError) as caught:
        make_logger("mine", "folder")
    assert str(caught.value) == (
        "the logger 'mine' of the distribution 'rlox-mine' is broken: 'on_fire:Logger' cannot be "
        "imported: OSError: fire"
    )
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(
    ("find", "field", "base"),
    [
        (registry.config_class, "config", "rlox.Config"),
        (registry.algorithm_class, "factory", "rlox.Algorithm"),
    ],
)
def test_an_algorithms_classes_are_checked(
    plant: Plant, find: Callable[[str], Any], field: str, base: str
) -> None:
    """Both are used long after they were found."""
    plant("rlox_algorithms", config="planted:NoFolder", factory="planted:NoFolder")
    with pytest.raises(PluginError) as caught:
        find("mine")
    assert str(caught.value).startswith(
        f"the algorithm 'mine' of the distribution 'rlox-mine' is broken: {field} must name a "
        f"subclass of {base}, but 'planted:NoFolder' is <class "
    )


def test_compiled_code_that_exposes_no_signature_is_called(plant: Plant) -> None:
    """Nothing is known against it."""
    plant("rlox_buffers", factory="planted:compiled")
    assert registry.get_registry().get("rlox_buffers", "mine").build("7") == 7
