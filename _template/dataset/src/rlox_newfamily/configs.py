"""Configs of the algorithms; importable without torch."""

from __future__ import annotations

from rlox.config.model import Widths, positive, widths
from rlox.offline.config import OfflineConfig

__all__ = ["NewAlgorithmConfig"]

PAPER = "Peters and Schaal 2007"


class NewAlgorithmConfig(OfflineConfig):
    """Options of NewAlgorithm: those of every offline algorithm, and the numbers of its loss."""

    temperature: float = positive(0.1, help="temperature β", unit="reward", source=PAPER)
    learning_rate: float = positive(3e-4, help="Adam's step size", source="rlox")
    hidden: Widths = widths(256, source="rlox")
