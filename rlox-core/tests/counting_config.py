"""The counting algorithm's config, apart from it as every plugin has it: importing it is cheap."""

from __future__ import annotations

from rlox.config.model import PRESET, Config, count


class CountingConfig(Config):
    """Options of the counting algorithm."""

    seed: int | None = count(42, ge=0, unit="1", help="fixes every random draw", source="test")
    preset: str = PRESET
    n_envs: int = count(2, unit="envs", help="number of envs N", source="test")
    n_steps: int = count(4, unit="env steps per env", help="rollout length T", source="test")
    n_updates: int = count(3, unit="gradient steps", help="updates per rollout", source="test")
