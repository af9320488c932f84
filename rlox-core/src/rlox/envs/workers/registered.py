"""Env ids that this process has registered, for worker processes."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

__all__ = ["register_here", "spec_to_send"]


def spec_to_send(env: Any) -> EnvSpec | None:
    """Return how gymnasium makes the env of an id; ``None`` if ``env`` is none that it has."""
    return gymnasium.registry.get(env) if isinstance(env, str) else None


def register_here(spec: EnvSpec | None) -> None:
    """Register what :func:`spec_to_send` returned elsewhere."""
    if spec is not None:
        gymnasium.registry.setdefault(spec.id, spec)
