"""Options of APPO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator
from rlox.config.model import (
    ScheduleValue,
    choice,
    coefficient,
    count,
    discount,
    flag,
    option,
    positive,
    schedule,
)

from rlox_onpolicy.actor_options import ActorsConfig

__all__ = ["APPOConfig"]

LUO = "Luo et al. 2020"
RLLIB = "RLlib, APPOConfig"
SAMPLE_FACTORY = "Sample Factory, cfg.py"
SCHULMAN = "Schulman et al. 2017"


class APPOConfig(ActorsConfig):
    """Options of APPO."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (0.0, 1.0),
        "clip_eps": (0.0, 1.0),
        "ent_coef": (0.0, float("inf")),
    }

    n_envs: int = count(
        4, unit="envs", help="number of envs N that each actor steps together", source="rlox"
    )
    n_steps: int = count(
        128, unit="env steps per env", help="length T of an unroll", source="rlox; 50 in " + RLLIB
    )
    advantages: Literal["vtrace", "gae"] = choice(
        "vtrace", source=f"{RLLIB}: vtrace; GAE in {SAMPLE_FACTORY}",
        help="how advantages and targets follow from the target network's values; gae does not "
        "correct for old weights",
    )  # fmt: skip
    gae_lambda: float = discount(
        0.95, help="trace decay λ of advantages='gae'", source=f"{SCHULMAN}, table 3"
    )
    target_update_interval: int = count(
        2, unit="updates", help="updates k after which the target network becomes the policy",
        source=RLLIB,
    )  # fmt: skip
    ratio_bound: float = option(
        2.0, help="bound β of μ/π_target, the part of the ratio that the actors' policy has",
        unit="1", source=f"{LUO}, eq. 4; 2 in {RLLIB}", ge=1.0,
    )  # fmt: skip
    n_epochs: int = count(
        4, unit="epochs", help="passes over each update's steps", source=f"rlox; 1 in {RLLIB}"
    )
    batch_size: int = count(
        256, unit="rows",
        help="minibatch size, at most the update's; an epoch's last has the remainder",
        source="rlox",
    )  # fmt: skip
    learning_rate: ScheduleValue = schedule(
        "linear(1e-3, 0)", help="Adam's step size", source=f"rlox; 5e-4 in {RLLIB}"
    )
    adam_eps: float = positive(
        1e-5, help="added to the root of Adam's second moment",
        source="Huang et al. 2022, The 37 implementation details of PPO, detail 3",
    )  # fmt: skip
    clip_eps: ScheduleValue = schedule(
        0.2, help="clip range ε of the probability ratio",
        source=f"{SCHULMAN}, table 1; 0.4 in {RLLIB}",
    )  # fmt: skip
    vf_coef: float = coefficient(0.5, help="weight c_1 of the value loss", source=RLLIB)
    ent_coef: ScheduleValue = schedule(
        0.01, help="weight c_2 of the entropy bonus", unit="1/nats", source=RLLIB
    )
    max_grad_norm: float = positive(
        0.5, help="bound of the gradient's Euclidean norm",
        source=f"openai/baselines ppo2; 4 in {SAMPLE_FACTORY}",
    )  # fmt: skip
    normalize_advantages: bool = flag(
        True, help="standardise advantages within each minibatch", source=SAMPLE_FACTORY
    )
    target_kl: float | None = positive(
        None, help="stops the epochs when the approximate KL passes 1.5 times this; None: never",
        unit="nats", source="openai/spinningup ppo",
    )  # fmt: skip

    @model_validator(mode="after")
    def _check_batch(self) -> APPOConfig:
        rows = self.update_size * self.n_envs * self.n_steps
        if "batch_size" not in self.model_fields_set and self.batch_size > rows:
            # past the model, which is frozen and would count the option as given
            self.__dict__["batch_size"] = rows
        if self.batch_size > rows:
            raise ValueError(
                f"batch_size {self.batch_size} exceeds the {rows} rows of an update, "
                f"{self.update_size} unrolls of n_envs * n_steps = {self.n_envs} * {self.n_steps}; "
                "lower it or lengthen the unrolls"
            )
        if self.recurrent != "none" and self.batch_size % self.n_steps:
            raise ValueError(
                f"batch_size {self.batch_size} is no multiple of n_steps {self.n_steps}; the "
                "minibatches of a recurrent policy are whole sequences"
            )
        if self.normalize_advantages and 1 in (self.batch_size, rows % self.batch_size):
            raise ValueError(
                f"batch_size {self.batch_size} makes a minibatch of one of the update's {rows} "
                "rows, whose advantage cannot be standardised; choose a divisor above 1 or turn "
                "normalize_advantages off"
            )
        return self
