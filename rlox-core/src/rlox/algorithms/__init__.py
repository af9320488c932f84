"""The algorithms' classes, each resolved from its own distribution on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlox.errors import suggest

if TYPE_CHECKING:
    from rlox.algorithms.a2c import A2C
    from rlox.algorithms.bc import BC
    from rlox.algorithms.dqn import DQN
    from rlox.algorithms.ppo import PPO

__all__ = ["A2C", "BC", "DQN", "PPO"]

_MODULES = {
    "A2C": "rlox.algorithms.a2c",
    "BC": "rlox.algorithms.bc",
    "DQN": "rlox.algorithms.dqn",
    "PPO": "rlox.algorithms.ppo",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'rlox.algorithms' has no '{name}'{suggest(name, _MODULES)}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
