"""The algorithms' classes, each resolved from its own distribution on first use."""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from rlox.errors import missing_extra, suggest
from rlox.files import require_working_directory
from rlox.registry.families import ALGORITHMS

__all__ = sorted(row.class_name for row in ALGORITHMS)  # noqa: PLE0605  # the table's

require_working_directory()  # before any of them imports torch, which ends a process without one


class _Modules(MetaPathFinder, Loader):
    """Makes the documented module of an algorithm, such as ``rlox.algorithms.ppo``, from its row.

    Raises:
        MissingDependencyError: on import, its family is not installed.
    """

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        """Return a spec for the modules of the table."""
        known = any(row.facade == fullname for row in ALGORITHMS)
        return ModuleSpec(fullname, self) if known else None

    def exec_module(self, module: ModuleType) -> None:
        """Put the class into the module."""
        (row,) = (row for row in ALGORITHMS if row.facade == module.__name__)
        try:
            cls = getattr(importlib.import_module(row.module), row.class_name)
        except ModuleNotFoundError as error:
            raise missing_extra(f"rlox.algorithms.{row.class_name}", row.extra) from error
        setattr(module, row.class_name, cls)
        module.__doc__ = f"{row.class_name}, from ``rlox-{row.extra}``."
        setattr(module, "__all__", [row.class_name])  # noqa: B010


sys.meta_path.append(_Modules())


def __getattr__(name: str) -> Any:
    for row in ALGORITHMS:
        if row.class_name == name:
            return getattr(importlib.import_module(row.facade), name)
    raise AttributeError(f"module 'rlox.algorithms' has no '{name}'{suggest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
