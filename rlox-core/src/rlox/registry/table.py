"""The registry: plugins, and names to their specs.

pluggy alone ignores the second of two distributions that use one entry-point name, stops at the
first import that fails and accepts misspelt hook names silently; this module reports all three.

Environment variables: ``RLOX_PLUGINS`` (comma-separated names, load only these),
``RLOX_PLUGINS_STRICT=1`` (a failing plugin is an error), ``RLOX_TRACE_PLUGINS=1`` (print the
loaded plugins).

Errors about references name the plugin: kind, name and distribution.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from types import SimpleNamespace
from typing import Any, cast

import pluggy

from rlox.errors import (
    ConfigError,
    MissingDependencyError,
    PluginConflictError,
    PluginError,
    PluginWarning,
    RloxError,
    UnknownNameError,
    missing_extra,
    requirement,
    suggest,
)
from rlox.files import require_working_directory
from rlox.registry.families import extra_of
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
"""Every hook, a function without arguments, and the class of the specs that it yields."""

_HOOKSPECS: Any = SimpleNamespace(**{h: pluggy.HookspecMarker("rlox")(lambda: ()) for h in HOOKS})


def _entry_points() -> list[metadata.EntryPoint]:
    """Return the entry points to load; a distribution found twice counts once."""
    installed = metadata.entry_points(group=GROUP)
    names = installed.names
    if (allowed := os.environ.get("RLOX_PLUGINS")) is not None:
        given = {name.strip() for name in allowed.split(",")} - {""}
        names = {"rlox-core", *given}
        if unknown := sorted(given - installed.names):
            known = sorted(installed.names)
            raise UnknownNameError(
                f"RLOX_PLUGINS names the plugin '{unknown[0]}', which is not installed"
                f"{suggest(unknown[0], known)} (installed: {', '.join(known)})"
            )
    found: dict[str, metadata.EntryPoint] = {}
    for entry_point in installed:
        if entry_point.name not in names:
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


def _specs_of(entry_point: metadata.EntryPoint) -> Iterator[tuple[str, Any]]:
    """Load a plugin and yield its hooks and specs.

    Raises:
        PluginError: it registers nothing, or has a hook without its mark, which pluggy ignores.
        TypeError: a hook returns something else.
    """
    # one manager per plugin, so that a misspelt hook in check_pending() is this plugin's
    manager = pluggy.PluginManager("rlox")
    manager.add_hookspecs(_HOOKSPECS)
    module = entry_point.load()
    manager.register(module, entry_point.name)
    manager.check_pending()
    hooks = manager.get_hookcallers(module) or ()
    marked = {hook.name for hook in hooks}
    functions = {n for n in dir(module) if n.startswith("rlox_") and callable(getattr(module, n))}
    # next to a hook, a function of another name may be a helper; otherwise it is a mistake
    forgotten = sorted((functions & set(HOOKS) if marked else functions) - marked)
    if forgotten:
        raise PluginError(f"mark {', '.join(forgotten)} with @rlox.hookimpl to register anything")
    if not marked:
        raise PluginError(
            "it registers nothing; implement a hook, such as rlox_algorithms, with @rlox.hookimpl"
        )
    for hook in hooks:
        expected = HOOKS[hook.name]
        for implementation in hook.get_hookimpls():
            for spec in cast("Iterable[Any]", implementation.function()):
                if not isinstance(spec, expected):
                    raise TypeError(f"{hook.name} must yield {expected.__name__}, got {spec!r}")
                yield hook.name, spec


def load_plugins() -> list[Registration]:
    """Load all installed plugins and return their registrations.

    Raises:
        UnknownNameError: ``RLOX_PLUGINS`` names a plugin that is not installed.
        PluginConflictError: two distributions use one entry-point name.
        PluginError: a plugin failed and ``RLOX_PLUGINS_STRICT=1``.
    """
    registrations: list[Registration] = []
    for entry_point in _entry_points():
        distribution, found = _distribution(entry_point), []
        try:
            found = list(_specs_of(entry_point))
        except Exception as error:
            message = f"rlox plugin '{distribution}' failed: {type(error).__name__}: {error}"
            if os.environ.get("RLOX_PLUGINS_STRICT") == "1":
                raise PluginError(message) from error
            message += "; the rest of rlox works without it"
            warnings.warn(message, PluginWarning, stacklevel=2)
        registrations += [Registration(spec, hook, distribution) for hook, spec in found]
        if os.environ.get("RLOX_TRACE_PLUGINS") == "1":
            names = [spec.name for _, spec in found]
            print(f"rlox plugin '{distribution}': {', '.join(names) or 'nothing'}", file=sys.stderr)
    return registrations


def resolve(reference: str) -> Any:
    """Return the object that ``"module:name"`` names.

    Raises:
        PluginError: the reference is malformed or the module has no such name.
        ConfigError: the working directory was deleted; without one torch ends the process.
    """
    require_working_directory()
    module, _, name = reference.partition(":")
    if not name:
        raise PluginError(f"reference must look like 'module:name', got '{reference}'")
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        raise PluginError(f"module '{module}' has no '{name}' (reference '{reference}')") from None


OWN = ", and the keyword options if the spec names a model of them"

PARTS: dict[str, tuple[str, str | None]] = {
    "rlox_env_backends": ("(env_id, *, n_envs, env_kwargs)" + OWN, "rlox.protocols:VecEnv"),
    "rlox_buffers": ("(asked)" + OWN, None),
    "rlox_learner_backends": ("(task)", None),
    "rlox_actor_backends": ("(plan, index)" + OWN, None),
    "rlox_policy_losses": ("(batch)" + OWN, None),
    "rlox_preference_losses": ("(batch)" + OWN, None),
    "rlox_loggers": ("(log_dir)", "rlox.logging:LoggerCallback"),
    "rlox_callbacks": ("(), or with (log_dir) if in_folder is set", "rlox.callbacks:Callback"),
    "rlox_commands": ("()", "typer:Typer"),
    "rlox_places": ("(address)", None),
}
"""Call of each hook's factories, and the class of their product, if it has one."""


def kind_of(hook: str) -> str:
    """Return the kind of plugin that a hook registers, in words."""
    plural = hook.removeprefix("rlox_").replace("_", " ")
    return plural.removesuffix("es" if plural.endswith("sses") else "s")


@dataclass(frozen=True)
class Registration:
    """One spec with the distribution and hook that it came from."""

    spec: Any
    hook: str
    distribution: str

    def load(
        self, field: str = "factory", *, base: str | None = None, remedy: str | None = None
    ) -> Any:
        """Import the object that a field of the spec names.

        Args:
            field: of the spec.
            base: ``"module:Class"``, its required base class; ``None`` allows anything.
            remedy: advice if a module is missing; ``None`` names the distribution.

        Raises:
            MissingDependencyError: a module is not installed.
            PluginError: the import fails for another reason, or gives something else.
        """
        reference = getattr(self.spec, field)
        try:
            found = resolve(reference)
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"the {kind_of(self.hook)} '{self.spec.name}' needs the module '{error.name}', "
                f'which is not installed; run: pip install "{remedy or self.distribution}"'
            ) from error
        except PluginError as error:
            raise self.broken(str(error)) from None
        except RloxError:
            raise
        except Exception as error:
            raise self.broken(
                f"'{reference}' cannot be imported: {type(error).__name__}: {error}"
            ) from error
        if base is not None and not (isinstance(found, type) and issubclass(found, resolve(base))):
            raise self.broken(
                f"{field} must name a subclass of {_dotted(base)}, but '{reference}' is {found!r}"
            )
        return found

    @property
    def described(self) -> str:
        """Kind, name and distribution, in words."""
        return (
            f"the {kind_of(self.hook)} '{self.spec.name}' of the distribution '{self.distribution}'"
        )

    def options_model(self) -> type[Any] | None:
        """Return the model of the plugin's own options, a :class:`rlox.Config`, if it has one."""
        if getattr(self.spec, "options", None) is None:
            return None
        return cast("type[Any]", self.load("options", base="rlox:Config"))

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Call the factory.

        A factory with options gets their defaults unless ``options`` is given. The factory's own
        errors are passed on.

        Raises:
            MissingDependencyError: a module is not installed.
            PluginError: it cannot be imported, takes other arguments or returns another type.
        """
        factory = self.load()
        model = self.options_model()
        if kwargs.get("options") is None:
            kwargs.pop("options", None)
            if model is not None:
                kwargs["options"] = model()
        call, product = PARTS[self.hook]
        if getattr(self.spec, "teams", False):
            product = "rlox.protocols:MultiAgentVecEnv"
        try:
            inspect.signature(factory).bind(*args, **kwargs)
        except TypeError as error:
            raise self.broken(
                f"'{self.spec.factory}' must be callable with {call}: {error}"
            ) from None
        except ValueError:
            pass  # compiled code may hide its signature
        made = factory(*args, **kwargs)
        if product is not None and not isinstance(made, resolve(product)):
            raise self.broken(
                f"'{self.spec.factory}' must return a {_dotted(product)}, got {type(made).__name__}"
            )
        return made

    def broken(self, reason: str) -> PluginError:
        """Return an error that blames the plugin."""
        return PluginError(f"{self.described} is broken: {reason}")


def _dotted(reference: str) -> str:
    return reference.replace(":", ".")


class Registry:
    """All specs by kind and name.

    Two distributions that claim the same name make only that name unusable.
    """

    def __init__(self, registrations: Iterable[Registration]) -> None:
        self._found: dict[tuple[str, str], list[Registration]] = {}
        for registration in registrations:
            key = (registration.hook, registration.spec.name)
            self._found.setdefault(key, []).append(registration)

    def names(self, hook: str) -> list[str]:
        """Return the registered names of a hook, sorted."""
        return sorted(name for kind, name in self._found if kind == hook)

    def conflicts(self) -> list[str]:
        """Return one sentence for every name that two distributions claim."""
        return [
            self._conflict(hook, name)
            for (hook, name), all_ in self._found.items()
            if len(all_) > 1
        ]

    def _conflict(self, hook: str, name: str) -> str:
        found = [f"'{each.distribution}'" for each in self._found[hook, name]]
        if len(set(found)) == 1:
            return f"the name '{name}' ({hook}) is registered twice by the distribution {found[0]}"
        claimants = " and ".join(dict.fromkeys(found))
        return (
            f"the name '{name}' ({hook}) is claimed by the distributions {claimants}; "
            "uninstall one of them"
        )

    def get(self, hook: str, name: str) -> Registration:
        """Return the registration of ``name``.

        Raises:
            TypeError: the name is not a string.
            UnknownNameError: it is not registered; the text has the nearest names.
            MissingDependencyError: it is one of rlox's own, and its distribution is not installed.
            PluginConflictError: two distributions claim it; the text names both.
        """
        given: object = name
        if not isinstance(given, str):
            raise TypeError(f"the name of the {kind_of(hook)} must be text, got {given!r}")
        found = self._found.get((hook, name), [])
        if len(found) > 1:
            raise PluginConflictError(self._conflict(hook, name))
        if not found:
            extra = extra_of(hook, name)
            if extra is not None:
                raise missing_extra(f"the {kind_of(hook)} '{name}'", extra)
            known = self.names(hook)
            raise UnknownNameError(
                f"unknown {kind_of(hook)} '{name}'{suggest(name, known)} "
                f"(installed: {', '.join(known) or 'none'})"
            )
        return found[0]

    def get_all(self, hook: str, names: Iterable[str]) -> list[Registration]:
        """Return the registrations of several names.

        Raises:
            ConfigError: a name is given twice.
            RloxError: see :meth:`get`.
        """
        found = {}
        for name in names:
            if name in found:
                raise ConfigError(f"the {kind_of(hook)} '{name}' is named twice")
            found[name] = self.get(hook, name)
        return list(found.values())

    def usable(self, hook: str) -> list[Registration]:
        """Return a hook's registrations, sorted by name, without conflicting ones."""
        return [
            found[0]
            for (kind, _), found in sorted(self._found.items())
            if kind == hook and len(found) == 1
        ]

    def by_priority(self, hook: str) -> list[Registration]:
        """Return the registrations of :meth:`usable`, the highest priority first."""
        return sorted(self.usable(hook), key=lambda each: -each.spec.priority)


@cache
def get_registry() -> Registry:
    """Return the registry of this process; plugins are loaded at the first call."""
    return Registry(load_plugins())


def list_algorithms() -> list[str]:
    """Return the names of the installed algorithms, sorted.

    Example:
        >>> isinstance(list_algorithms(), list)
        True
    """
    return get_registry().names("rlox_algorithms")


def spec(name: str) -> AlgorithmSpec:
    """Return the spec of an installed algorithm.

    Raises:
        UnknownNameError: it is not registered.
        MissingDependencyError: it is one of rlox's own, and its distribution is not installed.
    """
    return cast("AlgorithmSpec", find_algorithm(name).spec)


def find_algorithm(name: str) -> Registration:
    """Return the registration of the algorithm ``name``; errors: see :func:`spec`."""
    return get_registry().get("rlox_algorithms", name)


def config_class(name: str) -> type[Any]:
    """Return the config class of an installed algorithm, a subclass of :class:`rlox.Config`.

    Raises:
        MissingDependencyError: a library that it needs is not installed.
        PluginError: it cannot be imported, or is not a :class:`rlox.Config`.
    """
    return cast("type[Any]", find_algorithm(name).load("config", base="rlox:Config"))


def algorithm_class(name: str) -> type[Any]:
    """Return the class of an installed algorithm.

    Raises:
        MissingDependencyError: a library that the algorithm needs is not installed.
        PluginError: it cannot be imported, or is not an :class:`rlox.Algorithm`.
    """
    extra = extra_of("rlox_algorithms", name)
    remedy = None if extra is None else requirement(extra)
    found = find_algorithm(name).load(base="rlox:Algorithm", remedy=remedy)
    return cast("type[Any]", found)
