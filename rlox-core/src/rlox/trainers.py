"""Trainers: an algorithm built from an env, under the introduction's names."""

from __future__ import annotations

from typing import Any

from rlox.algorithm import Algorithm
from rlox.registry import make

__all__ = ["PPOTrainer"]


def PPOTrainer(env: Any, **arguments: Any) -> Algorithm:  # noqa: N802  # a class in the documents
    """Return ``rlox.make("ppo", env=env, ...)``; kept for the introduction's snippets."""
    return make("ppo", env=env, **arguments)
