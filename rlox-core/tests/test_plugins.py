"""Tests of :mod:`rlox.registry.table`, with distributions written to disk."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from rlox.errors import PluginConflictError, PluginError, PluginWarning, UnknownNameError
from rlox.registry.specs import AlgorithmSpec
from rlox.registry.table import Registration, load_plugins

Install = Callable[..., None]

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
        "import rlox\n\n@rlox.hookimpl\ndef rlox_loggers():\n    pass\n",
        "TypeError: ",
    ),
}


def names(registrations: list[Registration]) -> set[str]:
    """Return the names that were registered."""
    return {registration.spec.name for registration in registrations}


def test_core_registers_through_its_own_entry_point(install: Install) -> None:
    """What core provides comes the way of any plugin."""
    found = [r for r in load_plugins() if r.distribution == "rlox-core"]
    assert names(found) == {
        "checkpoint", "console", "csv", "early-stopping", "eval", "gymnasium", "her", "jsonl",
        "mlflow", "mmap", "prioritized", "progress", "sequence", "tensorboard", "timing", "torch",
        "process", "thread", "torch-compile", "uniform", "wandb",
    }  # fmt: skip


def test_plugin_is_found_with_its_distribution(install: Install) -> None:
    """A registration says who brought it and by which hook."""
    install("rlox-pets", ALGORITHM.format(name="pets"))
    (found,) = (r for r in load_plugins() if r.distribution == "rlox-pets")
    assert found.hook == "rlox_algorithms"
    assert found.spec == AlgorithmSpec("pets", "A test.", "nowhere:Config", "nowhere:Class")


def test_loading_a_plugin_resolves_nothing(install: Install) -> None:
    """A spec's references are only imported on use, so a plugin stays light."""
    install("rlox-pets", ALGORITHM.format(name="pets"))
    load_plugins()
    assert "nowhere" not in sys.modules


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_plugin_is_a_warning_and_the_rest_loads(install: Install, fault: str) -> None:
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


def test_broken_plugin_is_an_error_when_strict(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With RLOX_PLUGINS_STRICT=1 the first failure stops."""
    code, reason = BROKEN["hook"]
    install("rlox-aaa", code)
    monkeypatch.setenv("RLOX_PLUGINS_STRICT", "1")
    with pytest.raises(PluginError) as caught:
        load_plugins()
    assert str(caught.value).startswith(f"rlox plugin 'rlox-aaa' failed: {reason}")
    assert caught.value.__cause__ is not None


def test_one_entry_point_name_of_two_distributions_is_a_conflict(install: Install) -> None:
    """Neither is dropped silently; the error names both."""
    install("rlox-one", ALGORITHM.format(name="one"), entry_point="same")
    install("rlox-two", ALGORITHM.format(name="two"), entry_point="same")
    with pytest.raises(PluginConflictError) as caught:
        load_plugins()
    text = str(caught.value)
    assert "'rlox-one'" in text
    assert "'rlox-two'" in text
    assert text.endswith("both name their rlox plugin 'same'; uninstall one of them")


def test_rlox_plugins_limits_what_is_loaded(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the plugins named are loaded, and core's own always."""
    install("rlox-one", ALGORITHM.format(name="one"))
    install("rlox-two", ALGORITHM.format(name="two"))
    install("rlox-bad", "import no_such_module_anywhere")
    monkeypatch.setenv("RLOX_PLUGINS", " rlox-two ,")
    found = load_plugins()
    assert {r.distribution for r in found} == {"rlox-core", "rlox-two"}
    monkeypatch.setenv("RLOX_PLUGINS", "")
    assert {r.distribution for r in load_plugins()} == {"rlox-core"}


def test_rlox_plugins_names_installed_plugins(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt name would load core alone."""
    install("rlox-pets", ALGORITHM.format(name="pets"))
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-core,rlox-pet")
    with pytest.raises(UnknownNameError) as caught:
        load_plugins()
    message = "RLOX_PLUGINS names the plugin 'rlox-pet', which is not installed; did you mean"
    assert str(caught.value).startswith(f"{message} 'rlox-pets'")


def test_a_helper_called_like_a_hook_is_none(install: Install) -> None:
    """Beside a hook, a function of another name needs no mark."""
    install("rlox-pets", ALGORITHM.format(name="pets") + "\ndef rlox_help():\n    pass\n")
    assert "pets" in names(load_plugins())


def test_rlox_plugins_avoids_a_conflict(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conflict between plugins that are not loaded is none."""
    install("rlox-one", ALGORITHM.format(name="one"), entry_point="same")
    install("rlox-two", ALGORITHM.format(name="two"), entry_point="same")
    monkeypatch.setenv("RLOX_PLUGINS", "rlox-core")
    assert "one" not in names(load_plugins())


def test_trace_prints_what_each_plugin_brings(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """RLOX_TRACE_PLUGINS=1 writes a line per plugin to standard error."""
    install("rlox-one", ALGORITHM.format(name="one"))
    install("rlox-empty", "import rlox\n@rlox.hookimpl\ndef rlox_loggers():\n    return []\n")
    monkeypatch.setenv("RLOX_TRACE_PLUGINS", "1")
    load_plugins()
    lines = capsys.readouterr().err.splitlines()
    assert "rlox plugin 'rlox-one': one" in lines
    assert "rlox plugin 'rlox-empty': nothing" in lines
