"""Pickles for a new interpreter, with code that it cannot import."""

from __future__ import annotations

import pickletools
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import cloudpickle

__all__ = ["dumps"]


def dumps(value: Any) -> bytes:
    """Pickle by cloudpickle; what lies in modules that no path leads to is pickled by value.

    Modules that a notebook, a test runner or a loader of one's own has made are not on any path.
    """
    data: bytes = cloudpickle.dumps(value)
    names = {given for _, given, _ in pickletools.genops(data) if isinstance(given, str)}
    foreign = [
        module
        for name in sorted(names)
        if (module := sys.modules.get(name)) is not None and not _is_found(name, module)
    ]
    if not foreign:
        return data
    for module in foreign:
        cloudpickle.register_pickle_by_value(module)
    try:
        carried: bytes = cloudpickle.dumps(value)
    finally:
        for module in foreign:
            cloudpickle.unregister_pickle_by_value(module)
    return carried


def _is_found(name: str, module: ModuleType) -> bool:
    """Return whether importing ``name`` elsewhere leads to the file of ``module``."""
    file = getattr(module, "__file__", None)
    if file is None or name == "__main__":
        return True  # built in, or carried anyway
    parts = name.split(".")
    path: Any = None
    origin = None
    for end in range(1, len(parts) + 1):
        spec = next(_specs(".".join(parts[:end]), path), None)
        if spec is None:
            return False
        origin, path = spec.origin, spec.submodule_search_locations
    return bool(origin == file)


def _specs(name: str, path: Any) -> Iterator[Any]:
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None:
            yield spec
