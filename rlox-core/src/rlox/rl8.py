"""Facade of ``rlox-rl8``: its names and modules, which are the family's own."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

from rlox.errors import missing_extra

HOME = "rlox_rl8"

SUBMODULES = (
    "algorithms", "conditions", "data", "distributions", "env", "models", "nn", "nn.functional",
    "nn.modules", "nn.modules.activations", "nn.modules.attention", "nn.modules.embeddings",
    "nn.modules.mlp", "nn.modules.module", "nn.modules.perceiver", "nn.modules.skip",
    "policies", "schedulers", "trainers", "trainers.config", "views",
)  # fmt: skip

try:
    _home: Any = importlib.import_module(HOME)
    for _name in SUBMODULES:
        # `import rlox.rl8.env` finds the family's own module, which may be a package of rl8's
        _place = re.sub(r"(nn\.modules|trainers)\..*", r"\1", _name)
        sys.modules[f"{__name__}.{_name}"] = importlib.import_module(f"{HOME}.{_place}")
except ModuleNotFoundError as error:
    raise missing_extra("rlox.rl8", "rl8") from error


def __getattr__(name: str) -> Any:
    if name in SUBMODULES:
        return sys.modules[f"{__name__}.{name}"]
    if name.startswith("__"):
        raise AttributeError(f"module 'rlox.rl8' has no '{name}'")
    return getattr(_home, name)


def __dir__() -> list[str]:
    return sorted({*_home.__all__, *(name for name in SUBMODULES if "." not in name)})
