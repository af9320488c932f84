"""Configs of the on-policy algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator
from rlox.config.frames import (
    SHARED,
    ActingConfig,
    ClippedSurrogateConfig,
    RolloutConfig,
)
from rlox.config.model import (
    ScheduleValue,
    Widths,
    choice,
    coefficient,
    count,
    discount,
    flag,
    option,
    positive,
    schedule,
    widths,
)

ESPEHOLT = "Espeholt et al. 2018"
LUO = "Luo et al. 2020"
MNIH = "Mnih et al. 2016"
RLLIB = "RLlib, APPOConfig"
SAMPLE_FACTORY = "Sample Factory, cfg.py"
SCALABLE_AGENT = "deepmind/scalable_agent, experiment.py"
SCHULMAN = "Schulman et al. 2017"
TORCHBEAST = "facebookresearch/torchbeast, monobeast.py"

BOUNDS = {"learning_rate": (0.0, 1.0), "ent_coef": (0.0, float("inf"))}
"""Of options that may be schedules in all algorithms."""


CRITIC_OBS = option(
    (), help="keys of a Dict of observations that the critic alone sees", unit="names",
    source="Pinto et al. 2018",
)  # fmt: skip


class PPOConfig(ClippedSurrogateConfig):
    """Options of PPO."""

    shared: bool = SHARED
    critic_obs: tuple[str, ...] = CRITIC_OBS
    seq_len: int | None = count(
        None, unit="env steps", source="Williams and Peng 1990",
        help="steps that gradients go back through a memory; None: the whole rollout",
    )  # fmt: skip
    adaptive_kl: float | None = positive(
        None, help="keeps the approximate KL near this by the learning rate; None: does not",
        unit="nats", source="Rudin et al. 2022, app. A",
    )  # fmt: skip

    @property
    def steps_of_sequence(self) -> tuple[str, int]:
        """Name and value of the option that sets the length of a memory's sequences."""
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
    """Options of HybridPPO: PPO's, limited to the default policies and native envs."""

    n_envs: int = count(16, unit="envs", help="number of envs N stepped together", source="rlox")
    network: Literal["auto", "mlp"] = choice(
        "auto", help="either value: two tanh MLPs, for vector observations", source="rlox"
    )
    recurrent: Literal["none"] = choice(
        "none", help="the policy that acts in Rust has no memory", source="rlox"
    )
    env_backend: Literal["native"] = choice(
        "native", help="envs that a Rust thread can step", source="rlox"
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
            "frame_stack": 1, "seq_len": None, "activation": "tanh", "layer_norm": False,
            "conv": "auto", "shared": False, "critic_obs": (),
        }  # fmt: skip
        for name, value in only.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} must be {value}, got {getattr(self, name)}: the collecting thread "
                    "preprocesses nothing and has one kind of policy; take PPO for that"
                )
        if self.env_kwargs:
            raise ValueError(
                f"env_kwargs must be {{}}, got {self.env_kwargs}: native envs take none; take PPO, "
                "whose gymnasium envs do"
            )
        return self


class A2CConfig(RolloutConfig):
    """Options of A2C."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = BOUNDS

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
    hidden: Widths = widths(64, source="Stable-Baselines3")
    shared: bool = SHARED
    critic_obs: tuple[str, ...] = CRITIC_OBS

    @model_validator(mode="after")
    def _check_advantages(self) -> A2CConfig:
        if self.normalize_advantages and self.n_envs * self.n_steps == 1:
            raise ValueError(
                "a rollout of n_envs * n_steps = 1 row has no standard deviation; lengthen it or "
                "turn normalize_advantages off"
            )
        return self


class ActorsConfig(ActingConfig):
    """Base of the configs of algorithms that learn from actors' unrolls."""

    n_actors: int = count(2, unit="actors", help="number of actors A", source="rlox")
    n_envs: int = count(
        2, unit="envs", help="number of envs N that each actor steps together", source="rlox"
    )
    n_steps: int = count(
        32, unit="env steps per env", help="length T of an unroll",
        source=f"rlox; 100 in {SCALABLE_AGENT}",
    )  # fmt: skip
    unrolls_per_update: int | None = count(
        None, unit="unrolls", help="unrolls U of an update; None: one per actor",
        source=f"rlox; 8 in {TORCHBEAST}",
    )  # fmt: skip
    actor_backend: str = option(
        "thread", help="where actors collect: thread, process, or a plugin's registered name",
        unit="name", source="rlox", min_length=1, selects="rlox_actor_backends",
    )  # fmt: skip
    order: Literal["auto", "fixed", "arrival"] = choice(
        "auto", source="rlox",
        help="order of unrolls: fixed by the seed, or by arrival; auto is arrival where actors may "
        "be lost, else fixed",
    )  # fmt: skip
    queue_size: int = count(
        0, ge=0, unit="unrolls", source="rlox; 1 in " + SCALABLE_AGENT,
        help="unrolls collected ahead of their update; 0: actors rest while it learns",
    )  # fmt: skip
    max_lag: int | None = count(
        None, ge=0, unit="gradient steps", source="rlox",
        help="drop unrolls of weights older than this; None: keep all",
    )  # fmt: skip
    min_workers: int | None = count(
        None, unit="actors", help="least number of living actors, else an error; None: all",
        source="rlox",
    )  # fmt: skip
    worker_timeout: float = positive(
        60.0, unit="seconds", source="rlox",
        help="time limit of a remote actor for one step of its envs; then it is restarted",
    )  # fmt: skip
    max_restarts: int = count(
        3, ge=0, unit="restarts", help="restarts allowed for each remote actor",
        source="rlox",
    )  # fmt: skip
    gamma: float = discount(0.99, help="discount factor γ", source=SCALABLE_AGENT)
    rho_bar: float = positive(
        1.0, help="bound of the ratios in V-trace's targets", source=f"{ESPEHOLT}, sec. 4.1"
    )
    c_bar: float = positive(
        1.0, help="bound of the ratios that pass corrections back",
        source=f"{ESPEHOLT}, sec. 4.1",
    )  # fmt: skip
    pg_rho_bar: float = positive(
        1.0, help="bound of the ratios in the advantages", source=SCALABLE_AGENT
    )
    max_grad_norm: float = positive(
        40.0, help="bound of the gradient's Euclidean norm", source=TORCHBEAST
    )
    shared: bool = SHARED

    @property
    def update_size(self) -> int:
        """Unrolls U of an update."""
        return self.n_actors if self.unrolls_per_update is None else self.unrolls_per_update

    @model_validator(mode="after")
    def _check_actors(self) -> ActorsConfig:
        lag = -(-self.queue_size // self.update_size)
        if self.order != "arrival" and self.max_lag is not None and self.max_lag < lag:
            raise ValueError(
                f"max_lag {self.max_lag} is less than the lag {lag} of queue_size "
                f"{self.queue_size} with {self.update_size} unrolls an update; lower queue_size or "
                "raise max_lag"
            )
        if self.min_workers is not None and self.min_workers > self.n_actors:
            raise ValueError(
                f"min_workers {self.min_workers} exceeds n_actors {self.n_actors}; lower it"
            )
        if self.order == "fixed" and self.min_workers not in (None, self.n_actors):
            raise ValueError(
                f"min_workers {self.min_workers} < n_actors {self.n_actors} needs "
                "order='arrival': in the fixed order every unroll has its actor"
            )
        return self


class IMPALAConfig(ActorsConfig):
    """Options of IMPALA."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = BOUNDS

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
        "mean", help="over an update's steps; the default max_grad_norm of 40 suits sums",
        source=f"RLlib; sum in {ESPEHOLT}",
    )  # fmt: skip


class APPOConfig(ActorsConfig):
    """Options of APPO."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
        **BOUNDS,
        "clip_eps": (0.0, 1.0),
    }

    n_envs: int = count(
        4, unit="envs", help="number of envs N that each actor steps together", source="rlox"
    )
    n_steps: int = count(
        128, unit="env steps per env", help="length T of an unroll", source="rlox; 50 in " + RLLIB
    )
    advantages: Literal["vtrace", "gae"] = choice(
        "vtrace", source=f"{RLLIB}: vtrace; GAE in {SAMPLE_FACTORY}",
        help="estimator of advantages and targets from the target network's values; gae does not "
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
        2.0, help="bound β of the ratio μ/π_target, of the actors' policy and the target",
        unit="1", source=f"{LUO}, eq. 4; 2 in {RLLIB}", ge=1.0,
    )  # fmt: skip
    n_epochs: int = count(
        4, unit="epochs", help="passes over each update's steps", source=f"rlox; 1 in {RLLIB}"
    )
    batch_size: int = count(
        256, unit="rows",
        help="minibatch size, at most the update's; an epoch's last may be smaller",
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
            # around pydantic: the model is frozen, and would record the option as given
            self.__dict__["batch_size"] = rows
        if self.batch_size > rows:
            raise ValueError(
                f"batch_size {self.batch_size} exceeds the {rows} rows of an update, "
                f"{self.update_size} unrolls of n_envs * n_steps = {self.n_envs} * {self.n_steps}; "
                "lower it or lengthen the unrolls"
            )
        if self.recurrent != "none" and self.batch_size % self.n_steps:
            raise ValueError(
                f"batch_size {self.batch_size} is not a multiple of n_steps {self.n_steps}; the "
                "minibatches of a recurrent policy are whole sequences"
            )
        if self.normalize_advantages and 1 in (self.batch_size, rows % self.batch_size):
            raise ValueError(
                f"batch_size {self.batch_size} makes a minibatch of one of the update's {rows} "
                "rows, whose advantage cannot be standardised; choose a divisor above 1 or turn "
                "normalize_advantages off"
            )
        return self
