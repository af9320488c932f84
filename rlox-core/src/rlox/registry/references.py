"""References ``"module:name"`` of plugins, imported when they are used."""

from __future__ import annotations

import importlib
from typing import Any

from rlox.errors import PluginError
from rlox.files import require_working_directory

__all__ = ["resolve"]


def resolve(reference: str) -> Any:
    """Return the object that ``"module:name"`` names.

    Raises:
        PluginError: the reference is malformed or the module has no such name.
        ConfigError: the working directory was deleted, without which torch ends the process.
    """
    require_working_directory()
    module, _, name = reference.partition(":")
    if not name:
        raise PluginError(f"reference must look like 'module:name', got '{reference}'")
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        raise PluginError(f"module '{module}' has no '{name}' (reference '{reference}')") from None
