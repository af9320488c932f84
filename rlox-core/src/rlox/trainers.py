"""Trainers: an algorithm built from an env, under the introduction's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlox.algorithm import Algorithm, make
from rlox.errors import suggest
from rlox.registry.families import ALGORITHMS

_NAMES = {f"{row.class_name}Trainer": row.name for row in ALGORITHMS if row.trainer}

__all__ = sorted(_NAMES)  # noqa: PLE0605  # the table's


def __getattr__(name: str) -> Callable[..., Algorithm]:
    if name not in _NAMES:
        raise AttributeError(f"module 'rlox.trainers' has no '{name}'{suggest(name, _NAMES)}")
    algorithm = _NAMES[name]

    def trainer(env: Any, **arguments: Any) -> Algorithm:
        return make(algorithm, env=env, **arguments)

    trainer.__name__ = trainer.__qualname__ = name
    trainer.__doc__ = f'Return ``rlox.make("{algorithm}", env=env, ...)``.'
    globals()[name] = trainer
    return trainer


def __dir__() -> list[str]:
    return sorted(__all__)
