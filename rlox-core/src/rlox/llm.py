"""The names of ``rlox-llm``, resolved from that distribution on first use."""

from __future__ import annotations

import importlib
from typing import Any

from rlox.errors import missing_extra

HOME = "rlox_llm"


def _home() -> Any:
    try:
        return importlib.import_module(HOME)
    except ModuleNotFoundError as error:
        raise missing_extra("rlox.llm", "llm") from error


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # imports ask for those, with or without the distribution
        raise AttributeError(f"module 'rlox.llm' has no '{name}'")
    return getattr(_home(), name)


def __dir__() -> list[str]:
    return sorted(_home().__all__)
