"""Config of CrossQ."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator
from rlox.config.frames import ReplayConfig
from rlox.config.model import (
    ScheduleValue,
    Widths,
    count,
    flag,
    option,
    positive,
    probability,
    schedule,
    widths,
)

from rlox_offpolicy.configs import refuse_target_entropy_that_is_not_kept

BHATT = "Bhatt et al. 2024"
HAARNOJA = "Haarnoja et al. 2018b"


class CrossQConfig(ReplayConfig):
    """Options of CrossQ."""

    learning_rate: ScheduleValue = schedule(
        1e-3, help="Adam's step size, of policy, critics and temperature",
        source=f"{BHATT}, table 2",
    )  # fmt: skip
    adam_beta1: float = probability(
        0.5, help="Adam's β₁, of policy and critics", source=f"{BHATT}, table 2"
    )
    policy_delay: int = count(
        3, unit="gradient steps", source=f"{BHATT}, table 2",
        help="gradient steps of the critics for one of policy and temperature",
    )  # fmt: skip
    learning_starts: int = count(
        5_000, ge=0, unit="env steps", source=f"{BHATT}, table 2",
        help="uniform actions and no learning until so many transitions are stored",
    )  # fmt: skip
    hidden: Widths = widths(256, of=" of the policy", source=f"{BHATT}, table 2")
    critic_hidden: Widths = widths(2048, of=" of the critics", source=f"{BHATT}, table 2")
    renorm_momentum: float = probability(
        0.99, help="share of the running statistics that stays with each gradient step",
        source=f"{BHATT}, table 2",
    )  # fmt: skip
    renorm_warm_up: int = count(
        100_000, ge=0, unit="gradient steps", source="the authors' code",
        help="gradient steps with plain batch normalization before renormalization",
    )  # fmt: skip
    alpha: float = positive(
        1.0, help="temperature, or its initial value where it is learnt", unit="return/nats",
        source="the authors' code",
    )  # fmt: skip
    auto_entropy: bool = flag(
        True, help="learn the temperature for the target entropy", source=f"{HAARNOJA}, sec. 5"
    )
    target_entropy: float | None = option(
        None, help="entropy of actions in [-1, 1] to keep; None: minus their dimensions",
        unit="nats", source=f"{HAARNOJA}, table 1",
    )  # fmt: skip

    @property
    def renorm(self) -> dict[str, Any]:
        """Arguments of :class:`rlox_offpolicy.batch_renorm.BatchRenorm`."""
        return {"momentum": self.renorm_momentum, "warm_up": self.renorm_warm_up}

    @model_validator(mode="after")
    def _check_options(self) -> CrossQConfig:
        refuse_target_entropy_that_is_not_kept(self)
        if self.adam_beta1 == 1:
            raise ValueError("adam_beta1 must be below 1, got 1.0")
        return self
