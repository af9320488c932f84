"""Public interface of rl8 1.0: names, methods, parameters and defaults, as facts in a file.

    PYTHONPATH=<folder with rl8> python rlox-rl8/tests/rl8_interface.py

writes ``rl8_interface.json``, which the tests hold rlox's names against.
"""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("rl8_interface.json")
MODULES = (
    "", "algorithms", "conditions", "data", "distributions", "env", "models", "nn",
    "nn.functional", "nn.modules", "nn.modules.attention", "policies", "schedulers", "trainers",
    "trainers.config", "views",
)  # fmt: skip


def parameters(function: Any) -> list[list[str]]:
    """Return name, kind and default of each parameter but ``self``."""
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:  # a TypedDict
        return []
    return [
        [p.name, p.kind.name, "" if p.default is p.empty else repr(p.default)]
        for p in found
        if p.name not in ("self", "args", "kwargs")
    ]


def describe(value: Any) -> dict[str, Any]:
    """Return the constructor and the public methods of a class, or a function's parameters."""
    if not inspect.isclass(value):
        return {"": parameters(value)}
    found = {"": parameters(value)}
    for name, member in inspect.getmembers(value):
        own = getattr(member, "__qualname__", "").startswith(f"{value.__name__}.")
        if not name.startswith("_") and own and inspect.isroutine(member):
            found[name] = parameters(member)
    return found


def interface(package: str) -> dict[str, Any]:
    """Return the description of everything public, by module and name."""
    found: dict[str, Any] = {}
    for name in MODULES:
        module = importlib.import_module(f"{package}.{name}".rstrip("."))
        for key, value in sorted(vars(module).items()):
            home = getattr(value, "__module__", "") or ""
            # a package hands on the names of its modules; what else a module imports is not its own
            own = package if hasattr(module, "__path__") else module.__name__
            public = not key.startswith("_") and home.startswith(own)
            if public and (inspect.isclass(value) or inspect.isfunction(value)):
                found.setdefault(name, {})[key] = describe(value)
    return found


if __name__ == "__main__":
    RECORD.write_text(json.dumps(interface("rl8"), indent=0) + "\n", "utf-8")
