"""The registry: names of plugins to their specs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, cast

from rlox.errors import (
    ConfigError,
    PluginConflictError,
    UnknownNameError,
    missing_extra,
    requirement,
    suggest,
)
from rlox.families import extra_of
from rlox.registry.entry import Registration, kind_of
from rlox.registry.plugins import load_plugins
from rlox.registry.specs import AlgorithmSpec

__all__ = [
    "Registry",
    "algorithm_class",
    "config_class",
    "find_algorithm",
    "get_registry",
    "list_algorithms",
    "spec",
]


class Registry:
    """All specs by kind and name.

    Two distributions that claim one name make that name unusable, and only that name.
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
        """Return what is registered under ``name``.

        Raises:
            TypeError: the name is no text.
            UnknownNameError: nothing is; the text has the nearest names.
            MissingDependencyError: it is one of ours, and its distribution is not installed.
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
        """Return what is registered under several names.

        Raises:
            ConfigError: a name is there twice.
            RloxError: as :meth:`get`.
        """
        found = {}
        for name in names:
            if name in found:
                raise ConfigError(f"the {kind_of(hook)} '{name}' is named twice")
            found[name] = self.get(hook, name)
        return list(found.values())

    def usable(self, hook: str) -> list[Registration]:
        """Return what a hook registered, sorted by name, without what is in conflict."""
        return [
            found[0]
            for (kind, _), found in sorted(self._found.items())
            if kind == hook and len(found) == 1
        ]

    def by_priority(self, hook: str) -> list[Registration]:
        """Return what :meth:`usable` does, the highest priority first."""
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
        MissingDependencyError: it is one of ours, and its distribution is not installed.
    """
    return cast("AlgorithmSpec", find_algorithm(name).spec)


def find_algorithm(name: str) -> Registration:
    """Return what is registered as the algorithm ``name``; raises as :func:`spec`."""
    return get_registry().get("rlox_algorithms", name)


def config_class(name: str) -> type[Any]:
    """Return the config class of an installed algorithm, a subclass of :class:`rlox.Config`.

    Raises:
        MissingDependencyError: a library that it needs is not installed.
        PluginError: it cannot be imported, or is no :class:`rlox.Config`.
    """
    return cast("type[Any]", find_algorithm(name).load("config", base="rlox:Config"))


def algorithm_class(name: str) -> type[Any]:
    """Return the class of an installed algorithm.

    Raises:
        MissingDependencyError: a library that the algorithm needs is not installed.
        PluginError: it cannot be imported, or is no :class:`rlox.Algorithm`.
    """
    extra = extra_of("rlox_algorithms", name)
    remedy = None if extra is None else requirement(extra)
    found = find_algorithm(name).load(base="rlox:Algorithm", remedy=remedy)
    return cast("type[Any]", found)
