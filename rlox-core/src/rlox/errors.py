"""Exception classes of rlox, each also a builtin exception."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

MISFITS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip
"""What a hostile config, state or network may raise."""


class RloxError(Exception):
    """Base class of all rlox errors."""


class ConfigError(RloxError, ValueError):
    """A config holds an unknown option or a value out of range."""


class MemoryLimitError(RloxError, MemoryError):
    """What is asked for takes more memory than there is."""


class UnknownNameError(RloxError, LookupError):
    """A name is not registered."""


class MissingDependencyError(RloxError, ImportError):
    """A distribution that provides the requested name is not installed."""


class PluginConflictError(RloxError, RuntimeError):
    """Two distributions claim one name."""


class PluginError(RloxError, RuntimeError):
    """What a plugin registers is broken, or it failed to load and strict loading was asked for."""


class PluginWarning(UserWarning):
    """A plugin failed to load; everything else works."""


class SpaceError(RloxError, ValueError):
    """An algorithm cannot handle an env's observation or action space."""


class EnvError(RloxError, ValueError):
    """An env cannot be built, or broke its contract while stepping."""


class ExportError(RloxError, TypeError):
    """A policy holds something that a policy file cannot describe."""


class WorkerError(RloxError, RuntimeError):
    """A worker process failed."""


class WorkerLostError(WorkerError):
    """A worker process died or did not answer in time, and is not replaced any more."""


class DatasetError(RloxError, ValueError):
    """A dataset cannot be read, or an algorithm cannot learn from it."""


class BackendError(RloxError, ValueError):
    """A learner backend cannot do what was asked of it."""


class CheckpointError(RloxError, ValueError):
    """A checkpoint cannot be read or does not fit what it is loaded into."""


class RunError(RloxError, ValueError):
    """A run folder does not hold what is asked of it."""


class DivergenceError(RloxError, ArithmeticError):
    """A training diverged: what it learns is no finite number any more."""


class LoggerError(RloxError, RuntimeError):
    """A service that metrics are to be logged to refuses, or a file of them is damaged."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known names, or an empty string.

    Args:
        name: what the user wrote.
        known: every valid name.
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    if not matches:
        return ""
    return "; did you mean " + " or ".join(f"'{by_lower[match]}'" for match in matches) + "?"


def requirement(extra: str) -> str:
    """Return what ``pip install`` takes for an extra of rlox."""
    return f"rlox-core[{extra}]"


def name_clash() -> str:
    """Return what is wrong and what to do if another project's ``rlox`` is installed too.

    It writes the package ``rlox`` as rlox-core does, and files of the one installed last replace
    the other's.

    Returns:
        An empty string if it is not.
    """
    from importlib import metadata  # slow to import, and seldom needed

    try:
        version = metadata.version("rlox")
    except metadata.PackageNotFoundError:
        return ""
    return (
        f"the distribution 'rlox' {version} of another project is installed, and writes the "
        "package 'rlox' as rlox-core does; run: pip uninstall rlox && "
        "pip install --force-reinstall --no-deps rlox-core"
    )


def missing_extra(what: str, extra: str) -> MissingDependencyError:
    """Return the error for a name whose distribution is not installed.

    Args:
        what: the name the user asked for.
        extra: the extra of rlox-core that provides it.
    """
    return MissingDependencyError(
        f"{what} needs a distribution that is not installed; run: pip install "
        f'"{requirement(extra)}"'
    )


def unusable(what: str, module: str, error: ImportError) -> MissingDependencyError:
    """Return the error for a name whose distribution is there but does not import.

    Args:
        what: the name the user asked for.
        module: what was to be imported.
        error: why it was not, for example if a source tree lacks its compiled part.
    """
    distribution = module.replace("_", "-")
    return MissingDependencyError(
        f"{what} needs {distribution}, which is there but cannot be imported: {error}; run: "
        f"pip install --force-reinstall --no-deps {distribution} (in a source tree "
        f"./{distribution})"
    )


def import_extra(module: str, what: str, extra: str) -> Any:
    """Import a third party's module that an extra installs.

    Args:
        module: its name.
        what: the name the user asked for.
        extra: the extra of rlox-core that provides it.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_extra(what, extra) from error
