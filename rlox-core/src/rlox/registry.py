"""Names to specs, and :func:`make`: the one way from a name to a running algorithm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlox.errors import (
    ConfigError,
    PluginConflictError,
    UnknownNameError,
    missing_extra,
    suggest,
)
from rlox.plugins import load_plugins
from rlox.registration import Registration, kind_of
from rlox.specs import AlgorithmSpec

if TYPE_CHECKING:
    from rlox.algorithm import Algorithm
    from rlox.callbacks import Callback
    from rlox.config import Config
    from rlox.logging import LoggerCallback

__all__ = [
    "Registry",
    "explain",
    "get_registry",
    "list_algorithms",
    "make",
    "spec",
]

EXTRAS = {
    "a2c": "onpolicy",
    "awac": "offline",
    "bc": "offline",
    "cql": "offline",
    "ddpg": "offpolicy",
    "discrete_sac": "offpolicy",
    "dqn": "offpolicy",
    "fqe": "offline",
    "hybrid_ppo": "onpolicy",
    "iql": "offline",
    "ppo": "onpolicy",
    "sac": "offpolicy",
    "td3": "offpolicy",
    "td3_bc": "offline",
}
"""Algorithms of our own families and the extra that installs each, for the error's remedy."""


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
            PluginConflictError: two distributions claim it; the text names both.
        """
        given: object = name
        if not isinstance(given, str):
            raise TypeError(f"the name of the {kind_of(hook)} must be text, got {given!r}")
        found = self._found.get((hook, name), [])
        if len(found) > 1:
            raise PluginConflictError(self._conflict(hook, name))
        if not found:
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
    return cast("AlgorithmSpec", _algorithm(name).spec)


def _algorithm(name: str) -> Registration:
    try:
        return get_registry().get("rlox_algorithms", name)
    except UnknownNameError:
        if name in EXTRAS:
            raise missing_extra(f"the algorithm '{name}'", EXTRAS[name]) from None
        raise


def config_class(name: str) -> type[Config]:
    """Return the config class of an installed algorithm.

    Raises:
        MissingDependencyError: a library that it needs is not installed.
        PluginError: it cannot be imported, or is no :class:`rlox.Config`.
    """
    return cast("type[Config]", _algorithm(name).load("config", base="rlox:Config"))


def algorithm_class(name: str) -> type[Algorithm]:
    """Return the class of an installed algorithm.

    Raises:
        MissingDependencyError: a library that the algorithm needs is not installed.
        PluginError: it cannot be imported, or is no :class:`rlox.Algorithm`.
    """
    remedy = f"rlox[{EXTRAS[name]}]" if name in EXTRAS else None
    found = _algorithm(name).load(base="rlox:Algorithm", remedy=remedy)
    return cast("type[Algorithm]", found)


def explain(name: str) -> str:
    """Return a text about an algorithm: paper, distribution, and every option with its unit."""
    registration = _algorithm(name)
    found = cast("AlgorithmSpec", registration.spec)
    lines = [
        f"{found.name}: {found.summary}",
        f"paper: {found.paper or '-'}",
        f"distribution: {registration.distribution}",
        f"needs: {', '.join(found.needs)}",
        "options:",
    ]
    for field_name, field in config_class(name).model_fields.items():
        extra = cast("dict[str, Any]", field.json_schema_extra or {})
        lines.append(
            f"  {field_name} = {field.default} [{extra.get('unit', '1')}] {field.description} "
            f"({extra.get('source', '-')})"
        )
    return "\n".join(lines)


def make(
    name: str,
    env: Any = None,
    *,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    callbacks: Iterable[Callback | str] | Callback | str | None = None,
    logger: LoggerCallback | str | Iterable[LoggerCallback | str] | None = None,
    log_dir: str | Path = "runs",
    **overrides: Any,
) -> Algorithm:
    """Build the algorithm registered as ``name``.

    Args:
        name: registered name, ``"ppo"``; :func:`list_algorithms` has them all.
        env: what the algorithm interacts with: a gymnasium id, a callable that makes a gymnasium
            env, a gymnasium env, a gymnasium vector env, or a :class:`rlox.protocols.VecEnv`.
        config: a config object, a mapping, or the path of a YAML or JSON file.
        callbacks: callbacks, as objects or registered names.
        logger: a logger or several, as objects or registered names.
        log_dir: the folder of loggers and callbacks given by name.
        overrides: config options, which win over ``config``, and the algorithm's own arguments.

    Raises:
        UnknownNameError: ``name`` is not registered; the text has the nearest names.
        ConfigError: an option is unknown or out of range, or a needed argument is missing.

    Example:
        >>> make("pppo", env="CartPole-v1")  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        rlox.errors.UnknownNameError: unknown algorithm 'pppo'; did you mean 'ppo'?
    """
    needs = spec(name).needs
    given = {"env": env, **overrides}
    arguments = []
    for need in needs:
        if given.get(need) is None:
            raise ConfigError(f"the algorithm '{name}' needs {need}=..., got none")
        arguments.append(given.pop(need))
    if given.get("env", ...) is None:
        del given["env"]
    factory = cast("Any", algorithm_class(name))
    # imported here: they are found in this registry
    from rlox.listeners import make_callbacks, make_logger

    made = make_callbacks(callbacks, log_dir)
    algorithm: Algorithm = factory(*arguments, config=config, callbacks=made, logger=None, **given)
    try:
        # last: what is wrong with the rest leaves no file and no tracking service's run behind
        algorithm.logger = make_logger(logger, log_dir)
    except BaseException:
        algorithm.close()
        raise
    return algorithm
