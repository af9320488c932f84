"""Configs of the algorithms; importable without torch."""

from __future__ import annotations

from rlox.config import RolloutConfig, coefficient, count, flag, positive

BOOK = "Sutton and Barto 2018, sec. 13.5"


class NewAlgorithmConfig(RolloutConfig):
    """Options of NewAlgorithm: those of every rollout, and the numbers of its loss."""

    n_envs: int = count(16, unit="envs", help="number of envs N stepped together", source="rlox")
    n_steps: int = count(64, unit="env steps per env", help="rollout length T", source="rlox")
    learning_rate: float = positive(5e-3, help="Adam's step size", source="rlox")
    vf_coef: float = coefficient(0.5, help="weight of the squared value error", source=BOOK)
    normalize_advantages: bool = flag(
        True, help="standardise the rollout's advantages", source="rlox"
    )
