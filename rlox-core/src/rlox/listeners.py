"""Callbacks and loggers, given as objects or by registered name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rlox.callbacks import Callback
from rlox.logging import LoggerCallback, LoggerList
from rlox.logging.base import require_logger
from rlox.registration import Registration
from rlox.registry import get_registry

__all__ = ["make_callbacks", "make_logger"]


def make_callbacks(
    callbacks: Iterable[Callback | str] | Callback | str | None, log_dir: str | Path
) -> list[Callback]:
    """Return callbacks given as objects or registered names.

    Args:
        callbacks: one or several.
        log_dir: the folder of the files that callbacks given by name write.

    Raises:
        UnknownNameError: a name is not registered.
        ConfigError: a name is there twice.
        MissingDependencyError: what a callback needs is not installed.
        PluginError: what a name stands for is broken.
    """

    def make(registration: Registration) -> Any:
        return registration.build(*[log_dir] * registration.spec.in_folder)

    return _made("rlox_callbacks", callbacks, make)


def make_logger(
    loggers: LoggerCallback | str | Iterable[LoggerCallback | str] | None, log_dir: str | Path
) -> LoggerCallback | None:
    """Return one logger for all that are given as objects or registered names.

    Args:
        loggers: one or several.
        log_dir: the folder of loggers given by name.

    Raises:
        TypeError: one of them is no logger.
        UnknownNameError: a name is not registered.
        ConfigError: a name is there twice.
        MissingDependencyError: what a logger needs is not installed.
        PluginError: what a name stands for is broken.
    """
    with ExitStack() as opened:  # closed where a later one fails

        def make(registration: Registration) -> Any:
            logger = registration.build(log_dir)
            opened.callback(logger.close)
            return logger

        made = _made("rlox_loggers", loggers, make)
        if len(made) > 1:
            made = [LoggerList(*made)]
        for logger in made:
            require_logger(logger)
        opened.pop_all()
    return made[0] if made else None


def _made(hook: str, items: Any, make: Callable[[Registration], Any]) -> list[Any]:
    """Return what was given, one or several, with what ``make`` makes of what names stand for."""
    if items is None:
        return []
    several = isinstance(items, Iterable) and not isinstance(items, str)
    listed = list(items) if several else [items]
    names = [item for item in listed if isinstance(item, str)]
    found = dict(zip(names, get_registry().get_all(hook, names), strict=True))
    return [make(found[item]) if isinstance(item, str) else item for item in listed]
