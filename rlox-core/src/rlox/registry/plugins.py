"""Plugin discovery and loading, with isolated failures.

pluggy alone ignores the second of two distributions that use one entry-point name, stops at the
first import that fails and accepts misspelt hook names silently; this module reports all three.

Environment variables: ``RLOX_PLUGINS`` (comma-separated names, load only these),
``RLOX_PLUGINS_STRICT=1`` (a plugin that fails is an error), ``RLOX_TRACE_PLUGINS=1`` (print what
is loaded).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from typing import Any, cast

import pluggy

from rlox.errors import (
    PluginConflictError,
    PluginError,
    PluginWarning,
    UnknownNameError,
    suggest,
)
from rlox.registry import hookspecs
from rlox.registry.entry import Registration
from rlox.registry.specs import (
    ActorBackendSpec,
    AlgorithmSpec,
    BufferSpec,
    CallbackSpec,
    CommandSpec,
    EnvBackendSpec,
    LearnerBackendSpec,
    LoggerSpec,
    LossSpec,
    PlaceSpec,
    PresetsSpec,
    RunOptionsSpec,
)

__all__ = ["GROUP", "HOOKS", "load_plugins"]

GROUP = "rlox"

HOOKS: dict[str, type] = {
    "rlox_algorithms": AlgorithmSpec,
    "rlox_env_backends": EnvBackendSpec,
    "rlox_buffers": BufferSpec,
    "rlox_learner_backends": LearnerBackendSpec,
    "rlox_actor_backends": ActorBackendSpec,
    "rlox_policy_losses": LossSpec,
    "rlox_preference_losses": LossSpec,
    "rlox_loggers": LoggerSpec,
    "rlox_callbacks": CallbackSpec,
    "rlox_commands": CommandSpec,
    "rlox_places": PlaceSpec,
    "rlox_presets": PresetsSpec,
    "rlox_run_options": RunOptionsSpec,
}


def _entry_points() -> list[metadata.EntryPoint]:
    """Return the entry points to load, the same distribution found twice counted once."""
    allowed = os.environ.get("RLOX_PLUGINS")
    names = None
    installed = metadata.entry_points(group=GROUP)
    if allowed is not None:
        given = {name.strip() for name in allowed.split(",")} - {""}
        names = {"rlox-core", *given}
        unknown, known = sorted(given - installed.names), sorted(installed.names)
        if unknown:
            raise UnknownNameError(
                f"RLOX_PLUGINS names the plugin '{unknown[0]}', which is not installed"
                f"{suggest(unknown[0], known)} (installed: {', '.join(known)})"
            )
    found: dict[str, metadata.EntryPoint] = {}
    for entry_point in installed:
        if names is not None and entry_point.name not in names:
            continue
        other = found.setdefault(entry_point.name, entry_point)
        if _distribution(other) != _distribution(entry_point):
            raise PluginConflictError(
                f"the distributions '{_distribution(other)}' and '{_distribution(entry_point)}' "
                f"both name their rlox plugin '{entry_point.name}'; uninstall one of them"
            )
    return list(found.values())


def _distribution(entry_point: metadata.EntryPoint) -> str:
    return entry_point.dist.name if entry_point.dist is not None else entry_point.name


def _isolated(distribution: str, action: Callable[[], Any]) -> Any:
    """Return what ``action`` returns; a failure becomes a warning, or an error when strict."""
    try:
        return action()
    except Exception as error:
        message = f"rlox plugin '{distribution}' failed: {type(error).__name__}: {error}"
        if os.environ.get("RLOX_PLUGINS_STRICT") == "1":
            raise PluginError(message) from error
        warnings.warn(f"{message}; the rest of rlox works without it", PluginWarning, stacklevel=2)
        return None


def _specs_of(manager: pluggy.PluginManager, module: Any) -> Iterator[tuple[str, Any]]:
    for hook in manager.get_hookcallers(module) or ():
        expected = HOOKS[hook.name]
        for implementation in hook.get_hookimpls():
            for spec in cast("Iterable[Any]", implementation.function()):
                if not isinstance(spec, expected):
                    raise TypeError(f"{hook.name} must yield {expected.__name__}, got {spec!r}")
                yield hook.name, spec


def _require_hooks(manager: pluggy.PluginManager, module: Any) -> None:
    """Refuse a plugin that registers nothing, or whose author forgot to mark a hook.

    pluggy ignores unmarked functions. One of another name is a mistake only if no hook is there:
    it may be a helper.
    """
    marked = {hook.name for hook in manager.get_hookcallers(module) or ()}
    functions = {n for n in dir(module) if n.startswith("rlox_") and callable(getattr(module, n))}
    forgotten = sorted((functions & set(HOOKS) if marked else functions) - marked)
    if forgotten:
        raise PluginError(f"mark {', '.join(forgotten)} with @rlox.hookimpl to register anything")
    if not marked:
        raise PluginError(
            "it registers nothing; implement a hook, such as rlox_algorithms, with @rlox.hookimpl"
        )


def load_plugins() -> list[Registration]:
    """Load every installed plugin and return all that they register.

    Raises:
        UnknownNameError: ``RLOX_PLUGINS`` names a plugin that is not installed.
        PluginConflictError: two distributions use one entry-point name.
        PluginError: a plugin failed and ``RLOX_PLUGINS_STRICT=1``.
    """
    registrations: list[Registration] = []
    for entry_point in _entry_points():
        distribution = _distribution(entry_point)
        # one manager per plugin: a misspelt hook found by check_pending() is then this plugin's
        manager = pluggy.PluginManager("rlox")
        manager.add_hookspecs(hookspecs)

        def load(
            manager: pluggy.PluginManager = manager, entry_point: metadata.EntryPoint = entry_point
        ) -> list[tuple[str, Any]]:
            module = entry_point.load()
            manager.register(module, entry_point.name)
            manager.check_pending()
            _require_hooks(manager, module)
            return list(_specs_of(manager, module))

        for hook, spec in _isolated(distribution, load) or ():
            registrations.append(Registration(spec, hook, distribution))
        if os.environ.get("RLOX_TRACE_PLUGINS") == "1":
            names = [r.spec.name for r in registrations if r.distribution == distribution]
            print(f"rlox plugin '{distribution}': {', '.join(names) or 'nothing'}", file=sys.stderr)
    return registrations
