"""Kernel backends: Rust if ``rlox-native`` is installed, NumPy otherwise."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

__all__ = ["backend", "installed", "kernel"]


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
    return importlib.import_module("rlox.kernels.reference")


def kernel(name: str) -> Callable[..., Any]:
    """Return a kernel for advantages: Rust's, or the reference if that was edited."""
    module = backend()
    if module.__name__ == "rlox_native":
        reference = importlib.import_module("rlox.kernels.reference")
        edit = importlib.import_module("rlox_native.digests").find_edit(reference, f"self.{name}")
        if edit is not None:
            _log(f"{name} is the reference's (not native: {edit})")
            module = reference
    return getattr(module, name)  # type: ignore[no-any-return]


@cache
def _log(line: str) -> None:
    logging.getLogger("rlox").info(line)
