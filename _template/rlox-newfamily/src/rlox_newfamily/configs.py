"""Configs of the algorithms; importable without torch."""

from __future__ import annotations

from rlox.config.model import (
    ENV_BACKEND,
    PRESET,
    SEED,
    Config,
    coefficient,
    count,
    discount,
    positive,
)

__all__ = ["NewAlgorithmConfig"]

BOOK = "Sutton and Barto 2018, sec. 13.5"


class NewAlgorithmConfig(Config):
    """Options of NewAlgorithm."""

    seed: int | None = SEED
    preset: str = PRESET
    env_backend: str = ENV_BACKEND
    n_envs: int = count(16, unit="envs", help="number of envs N stepped together", source="rlox")
    n_steps: int = count(64, unit="env steps per env", help="rollout length T", source="rlox")
    learning_rate: float = positive(5e-3, help="Adam's step size", source="rlox")
    gamma: float = discount(0.99, help="discount factor γ", source=BOOK)
    gae_lambda: float = discount(
        0.95, help="trace decay λ; 0 takes one-step errors", source="Schulman et al. 2016, eq. 16"
    )
    vf_coef: float = coefficient(0.5, help="weight of the squared value error", source=BOOK)
    max_grad_norm: float = positive(
        0.5, help="bound of the gradient's Euclidean norm", source="rlox"
    )
