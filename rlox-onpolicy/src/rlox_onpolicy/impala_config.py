"""Options of IMPALA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from rlox.config.model import (
    ScheduleValue,
    choice,
    coefficient,
    discount,
    positive,
    schedule,
)

from rlox_onpolicy.actor_options import ESPEHOLT, SCALABLE_AGENT, ActorsConfig

__all__ = ["IMPALAConfig"]


class IMPALAConfig(ActorsConfig):
    """Options of IMPALA."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (0.0, 1.0),
        "ent_coef": (0.0, float("inf")),
    }

    learning_rate: ScheduleValue = schedule(
        5e-4,
        help="RMSprop's step size",
        source=f"rlox; 4.8e-4, annealed linearly to 0, in {SCALABLE_AGENT}",
    )
    rmsprop_alpha: float = discount(
        0.99, help="decay of RMSprop's second moment", source=SCALABLE_AGENT
    )
    rmsprop_eps: float = positive(
        1e-5, help="added to the root of RMSprop's second moment",
        source=f"openai/baselines a2c, for mean losses; 0.1 in {SCALABLE_AGENT}",
    )  # fmt: skip
    vf_coef: float = coefficient(
        0.5, help="weight of the value loss (V - vs)²",
        source=f"rlox; 0.25 in {SCALABLE_AGENT}",
    )  # fmt: skip
    ent_coef: ScheduleValue = schedule(
        0.01,
        help="weight of the entropy bonus",
        unit="1/nats",
        source=f"rlox; 2.5e-4 in {SCALABLE_AGENT}",
    )
    loss_reduction: Literal["mean", "sum"] = choice(
        "mean", help="over an update's steps; a norm of 40 is meant for sums",
        source=f"RLlib; sum in {ESPEHOLT}",
    )  # fmt: skip
