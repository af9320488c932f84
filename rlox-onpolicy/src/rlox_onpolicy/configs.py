"""Configs of the on-policy algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator
from rlox.config.clipped import ClippedSurrogateConfig, RolloutConfig
from rlox.config.model import (
    ScheduleValue,
    choice,
    coefficient,
    count,
    discount,
    flag,
    positive,
    schedule,
)

__all__ = ["A2CConfig", "HybridPPOConfig", "PPOConfig"]

MNIH = "Mnih et al. 2016"


class PPOConfig(ClippedSurrogateConfig):
    """Options of PPO."""

    seq_len: int | None = count(
        None, unit="env steps", source="Williams and Peng 1990",
        help="steps that gradients of a memory go back through; None: the rollout's",
    )  # fmt: skip

    @property
    def steps_of_sequence(self) -> tuple[str, int]:
        """Name and value of the option that says how long the sequences of a memory are."""
        return super().steps_of_sequence if self.seq_len is None else ("seq_len", self.seq_len)

    @model_validator(mode="after")
    def _check_sequences(self) -> PPOConfig:
        if self.seq_len is not None and self.n_steps % self.seq_len:
            raise ValueError(
                f"seq_len {self.seq_len} does not divide n_steps {self.n_steps}; rollouts are cut "
                "into whole sequences"
            )
        return self


class HybridPPOConfig(PPOConfig):
    """Options of HybridPPO: PPO's, as far as the default policies and native envs go."""

    n_envs: int = count(16, unit="envs", help="number of envs N stepped together", source="rlox")
    network: Literal["auto", "mlp"] = choice(
        "auto", help="both are two tanh MLPs, for vector observations", source="rlox"
    )
    recurrent: Literal["none"] = choice(
        "none", help="the policy that acts in Rust has no memory", source="rlox"
    )
    env_backend: Literal["native"] = choice(
        "native", help="the envs that a Rust thread can step", source="rlox"
    )
    compute_dtype: Literal["float32"] = choice(
        "float32", help="the policy that acts in Rust has no convolutions", source="rlox"
    )
    vectorization: Literal["sync"] = choice(
        "sync", help="the thread steps all envs one after the other", source="rlox"
    )
    overlap: bool = flag(
        False, source="rlox",
        help="collect the next rollout while learning, with weights of one iteration before",
    )  # fmt: skip

    @model_validator(mode="after")
    def _check_preprocessing(self) -> HybridPPOConfig:
        only = {
            "normalize_observations": False, "normalize_rewards": False, "clip_rewards": None,
            "frame_stack": 1, "seq_len": None,
        }  # fmt: skip
        for name, value in only.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} must be {value}, got {getattr(self, name)}: the thread that collects "
                    "preprocesses nothing; take PPO for that"
                )
        if self.env_kwargs:
            raise ValueError(
                f"env_kwargs must be {{}}, got {self.env_kwargs}: native envs take none; take PPO, "
                "whose gymnasium envs do"
            )
        return self


class A2CConfig(RolloutConfig):
    """Options of A2C."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (0.0, 1.0),
        "ent_coef": (0.0, float("inf")),
    }

    n_envs: int = count(
        8, unit="envs", help="number of envs N stepped together", source="Stable-Baselines3 zoo"
    )
    n_steps: int = count(
        5, unit="env steps per env", help="rollout length T", source=f"{MNIH}, sec. 5.1"
    )
    learning_rate: ScheduleValue = schedule(
        7e-4, help="RMSprop's step size", source="openai/baselines a2c"
    )
    rmsprop_alpha: float = discount(
        0.99, help="decay of RMSprop's second moment", source=f"{MNIH}, sec. 5.1"
    )
    rmsprop_eps: float = positive(
        1e-5, help="added to the root of RMSprop's second moment", source="openai/baselines a2c"
    )
    gamma: float = discount(0.99, help="discount factor γ", source=f"{MNIH}, sec. 5.1")
    gae_lambda: float = discount(
        1.0, help="trace decay λ of GAE; 1: n-step returns", source=f"{MNIH}, algorithm S3"
    )
    vf_coef: float = coefficient(
        0.5, help="weight of the value loss", source="openai/baselines a2c"
    )
    ent_coef: ScheduleValue = schedule(
        0.0, help="weight of the entropy bonus", unit="1/nats", source="Stable-Baselines3"
    )
    max_grad_norm: float = positive(
        0.5, help="bound of the gradient's Euclidean norm", source="openai/baselines a2c"
    )
    normalize_advantages: bool = flag(
        False, help="standardise the rollout's advantages", source="Stable-Baselines3"
    )
    hidden: int = count(
        64, unit="units", help="width of the two hidden layers", source="Stable-Baselines3"
    )

    @model_validator(mode="after")
    def _check_advantages(self) -> A2CConfig:
        if self.normalize_advantages and self.n_envs * self.n_steps == 1:
            raise ValueError(
                "a rollout of n_envs * n_steps = 1 row has no standard deviation; lengthen it or "
                "turn normalize_advantages off"
            )
        return self
