"""Kernel backends: Rust if ``rlox-native`` is installed, NumPy otherwise."""

from __future__ import annotations

import importlib.util
import warnings
from functools import cache
from types import ModuleType

__all__ = ["backend", "installed"]


def installed(package: str) -> bool:
    """Return whether a package is installed, without importing it."""
    return importlib.util.find_spec(package) is not None


@cache
def backend() -> ModuleType:
    """Return the module with the kernels; warns once when it is the slow reference."""
    if installed("rlox_native"):
        return importlib.import_module("rlox_native")
    warnings.warn(
        "rlox-native is not installed; the NumPy reference kernels are slow. "
        'Run: pip install "rlox-core[native]"',
        RuntimeWarning,
        stacklevel=2,
    )
    return importlib.import_module("rlox.reference")
