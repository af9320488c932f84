"""Configs of the offline algorithms."""

from __future__ import annotations

from rlox.config import count, flag, positive
from rlox.offline.config import OfflineConfig

__all__ = ["BCConfig"]

FUJIMOTO = "Fujimoto and Gu 2021"

HIDDEN = count(
    256, unit="units", help="width of the two hidden layers", source=f"{FUJIMOTO}, table 3"
)
LEARNING_RATE = positive(3e-4, help="Adam's step size", source=f"{FUJIMOTO}, table 3")


class BCConfig(OfflineConfig):
    """Options of behavioural cloning."""

    continuous: bool = flag(
        True, help="whether actions are vectors of numbers rather than one of several",
        source="rlox",
    )  # fmt: skip
    stochastic: bool = flag(
        False, help="whether a continuous policy is a Gaussian, fitted by likelihood, rather than "
        "one action, fitted by squared error; discrete policies always give probabilities",
        source="rlox",
    )  # fmt: skip
    hidden: int = HIDDEN
    learning_rate: float = LEARNING_RATE
