"""Configs of the off-policy algorithms."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator
from rlox.config.frames import ActorCriticConfig, ReplayConfig
from rlox.config.model import (
    COMPUTE_DTYPE,
    MaybeWidths,
    ScheduleValue,
    Widths,
    changed,
    choice,
    coefficient,
    count,
    flag,
    option,
    positive,
    probability,
    schedule,
    widths,
)

BELLEMARE = "Bellemare et al. 2017"
BHATT = "Bhatt et al. 2024"
CHRISTODOULOU = "Christodoulou 2019"
DABNEY = "Dabney et al. 2018"
FUJIMOTO = "Fujimoto et al. 2018"
HAARNOJA = "Haarnoja et al. 2018b"
LILLICRAP = "Lillicrap et al. 2016"
MNIH = "Mnih et al. 2015"
ZOO = "Stable-Baselines3 zoo"

EPSILON = "linear(1, 0.04, 8000)"
AUTO_ENTROPY = flag(
    True, help="learn the temperature for the target entropy", source=f"{HAARNOJA}, sec. 5"
)
TARGET_ENTROPY = option(
    None, help="entropy of actions in [-1, 1] to keep; None: minus their dimensions",
    unit="nats", source=f"{HAARNOJA}, table 1",
)  # fmt: skip

Noise = Literal["none", "gaussian", "ornstein-uhlenbeck"]


def _refuse_noise_std_without_noise(config: Any) -> Any:
    if config.exploration == "none" and changed(config, "noise_std"):
        raise ValueError(
            "noise_std needs exploration='gaussian' or 'ornstein-uhlenbeck', got exploration='none'"
        )
    return config


def _refuse_target_entropy_that_is_not_kept(config: Any) -> Any:
    if not config.auto_entropy and config.target_entropy is not None:
        raise ValueError("target_entropy needs auto_entropy=True, got auto_entropy=False")
    return config


class DQNConfig(ReplayConfig):
    """Options of DQN."""

    buffer_size: int = count(
        100_000, unit="transitions", help="capacity of the replay buffer", source=f"{ZOO}, CartPole"
    )
    train_freq: int = count(
        256, unit="env steps", help="env steps between learning, all envs counted",
        source=f"{ZOO}, CartPole",
    )  # fmt: skip
    gradient_steps: int = count(
        128, unit="gradient steps", source=f"{ZOO}, CartPole",
        help="gradient steps each time; over train_freq, the update-to-data ratio",
    )  # fmt: skip
    batch_size: int = count(
        64, unit="transitions", help="size of a batch", source=f"{ZOO}, CartPole"
    )
    learning_rate: ScheduleValue = schedule(
        2.3e-3, help="Adam's step size", source=f"{ZOO}, CartPole"
    )
    max_grad_norm: float | None = positive(
        10.0, help="bound of the gradient's Euclidean norm; None: not clipped",
        source="openai/baselines deepq",
    )  # fmt: skip
    target_update_interval: int = count(
        128, unit="gradient steps", help="gradient steps between updates of the target network",
        source=f"{ZOO}, CartPole",
    )  # fmt: skip
    tau: float = probability(
        1.0, help="share of the network in the target's update; 1: a copy",
        source=f"{MNIH}, algorithm 1",
    )  # fmt: skip
    epsilon: ScheduleValue | None = schedule(
        None, help=f"probability ε of a uniform action; None: {EPSILON}, or 0 with noisy",
        source=f"{ZOO}, CartPole",
    )  # fmt: skip
    loss: Literal["huber", "mse"] = choice(
        "huber", help="of the TD errors; huber is linear beyond 1", source=f"{MNIH}, methods"
    )
    double_dqn: bool = flag(
        False, help="the network chooses the action that the target network judges",
        source="van Hasselt et al. 2016",
    )  # fmt: skip
    dueling: bool = flag(
        False, help="separate streams for value and advantages", source="Wang et al. 2016"
    )
    compute_dtype: Literal["float32", "bfloat16"] = COMPUTE_DTYPE
    noisy: bool = flag(
        False, help="noisy layers explore, and no epsilon unless it is given",
        source="Fortunato et al. 2018",
    )  # fmt: skip
    noisy_std: float = positive(
        0.5, help="initial deviation σ₀ of noisy layers, times √fan-in",
        source="Fortunato et al. 2018, sec. 3.2",
    )  # fmt: skip
    distributional: Literal["none", "c51", "qr-dqn"] = choice(
        "none", help="returns are learnt as their mean, as atoms (c51) or quantiles (qr-dqn)",
        source=f"{BELLEMARE}; {DABNEY}",
    )  # fmt: skip
    n_atoms: int = count(
        51, ge=2, unit="atoms", help="number of c51's atoms", source=f"{BELLEMARE}, sec. 5.1"
    )
    v_min: float | None = option(
        None, help="return of c51's lowest atom", unit="return", source=f"{BELLEMARE}, sec. 4"
    )
    v_max: float | None = option(
        None, help="return of c51's highest atom", unit="return", source=f"{BELLEMARE}, sec. 4"
    )
    n_quantiles: int = count(
        200, unit="quantiles", help="number of qr-dqn's quantiles",
        source=f"{DABNEY}, sec. Experimental results",
    )  # fmt: skip

    @model_validator(mode="after")
    def _check_options(self) -> DQNConfig:
        if not self.noisy and changed(self, "noisy_std"):
            raise ValueError("noisy_std needs noisy=True, got noisy=False")
        if self.noisy and self.gain is not None:
            raise ValueError(f"gain must be None with noisy=True, got {self.gain}; leave one out")
        owners = {"n_atoms": "c51", "v_min": "c51", "v_max": "c51", "n_quantiles": "qr-dqn"}
        for name, owner in owners.items():
            if self.distributional != owner and changed(self, name):
                raise ValueError(
                    f"{name} needs distributional='{owner}', got "
                    f"distributional='{self.distributional}'"
                )
        if self.distributional != "none" and self.loss != "huber":
            raise ValueError(
                f"loss='{self.loss}' is of TD errors, which distributional="
                f"'{self.distributional}' has none of; leave it out, or take distributional='none'"
            )
        low, high = self.v_min, self.v_max
        bounded = low is not None and high is not None and low < high
        if self.distributional == "c51" and not bounded:
            raise ValueError(
                "distributional='c51' needs v_min < v_max, the least and the greatest discounted "
                f"return, got v_min={self.v_min} and v_max={self.v_max}; for rewards clipped to "
                "[-1, 1] the paper takes -10 and 10, and qr-dqn needs neither"
            )
        return self

    def scheduled(self) -> DQNConfig:
        """Return the config with ``epsilon`` set; its default depends on ``noisy``."""
        if self.epsilon is not None:
            return self
        return self.replace(epsilon=0.0 if self.noisy else EPSILON)


class SACConfig(ReplayConfig, ActorCriticConfig):
    """Options of SAC."""

    tau: float = probability(
        0.005, help="share of the critics in their targets' update", source=f"{HAARNOJA}, table 1"
    )
    alpha: float = positive(
        1.0, help="temperature, or its initial value where it is learnt", unit="return/nats",
        source="softlearning",
    )  # fmt: skip
    auto_entropy: bool = AUTO_ENTROPY
    target_entropy: float | None = TARGET_ENTROPY
    exploration: Noise = choice(
        "none", help="noise on the actions while collecting, besides the policy's own",
        source="Stable-Baselines3",
    )  # fmt: skip
    noise_std: float = positive(
        0.1, help="deviation of that noise, where half of an action's range is 1",
        source=f"{FUJIMOTO}, sec. 6.1",
    )  # fmt: skip

    _check_noise = model_validator(mode="after")(_refuse_noise_std_without_noise)
    _check_entropy = model_validator(mode="after")(_refuse_target_entropy_that_is_not_kept)


class DiscreteSACConfig(ReplayConfig, ActorCriticConfig):
    """Options of SAC for discrete actions."""

    train_freq: int = count(
        4, unit="env steps", help="env steps between learning, all envs counted",
        source=f"{CHRISTODOULOU}, appendix",
    )  # fmt: skip
    batch_size: int = count(
        64, unit="transitions", help="size of a batch", source=f"{CHRISTODOULOU}, appendix"
    )
    learning_rate: ScheduleValue = schedule(
        3e-4, help="Adam's step size, of policy, critics and temperature",
        source=f"{CHRISTODOULOU}, appendix",
    )  # fmt: skip
    tau: float = probability(
        0.005, help="share of the critics in their targets' update", source=f"{HAARNOJA}, table 1"
    )
    alpha: float = positive(
        1.0, help="temperature, or its initial value where it is learnt", unit="return/nats",
        source="the author's code",
    )  # fmt: skip
    auto_entropy: bool = flag(
        True, help="learn the temperature for the target entropy",
        source=f"{CHRISTODOULOU}, eq. 11",
    )  # fmt: skip
    target_entropy: float | None = coefficient(
        None, help="entropy to keep; None: 0.98 of log A, the most there is", unit="nats",
        source="the author's code",
    )  # fmt: skip

    _check_entropy = model_validator(mode="after")(_refuse_target_entropy_that_is_not_kept)


class CrossQConfig(ReplayConfig, ActorCriticConfig):
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
        help="transitions to collect by uniform actions before learning starts",
    )  # fmt: skip
    hidden: Widths = widths(256, of=" of the policy", source=f"{BHATT}, table 2")
    critic_hidden: MaybeWidths = widths(2048, of=" of the critics", source=f"{BHATT}, table 2")
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
    auto_entropy: bool = AUTO_ENTROPY
    target_entropy: float | None = TARGET_ENTROPY

    @property
    def renorm(self) -> dict[str, Any]:
        """Arguments of :class:`rlox_offpolicy.batch_renorm.BatchRenorm`."""
        return {"momentum": self.renorm_momentum, "warm_up": self.renorm_warm_up}

    _check_entropy = model_validator(mode="after")(_refuse_target_entropy_that_is_not_kept)

    @model_validator(mode="after")
    def _check_options(self) -> CrossQConfig:
        if self.layer_norm:
            raise ValueError("layer_norm must be False: batches are normalised; take SAC for that")
        if self.adam_beta1 == 1:
            raise ValueError("adam_beta1 must be below 1, got 1.0")
        return self


class TD3Config(ReplayConfig, ActorCriticConfig):
    """Options of TD3."""

    learning_rate: ScheduleValue = schedule(
        1e-3, help="Adam's step size, of policy and critics", source=f"{FUJIMOTO}, sec. 6.1"
    )
    tau: float = probability(
        0.005, help="share of the networks in their targets' update",
        source=f"{FUJIMOTO}, sec. 6.1",
    )  # fmt: skip
    policy_delay: int = count(
        2, unit="gradient steps", source=f"{FUJIMOTO}, sec. 5.2",
        help="gradient steps of the critics for one of the policy and the targets",
    )  # fmt: skip
    target_noise: float = coefficient(
        0.2, help="deviation σ of the noise on the targets' actions; 0: none",
        source=f"{FUJIMOTO}, sec. 6.1",
    )  # fmt: skip
    noise_clip: float = coefficient(
        0.5, help="bound c of that noise", source=f"{FUJIMOTO}, sec. 6.1"
    )
    exploration: Noise = choice(
        "gaussian", help="noise on the actions while collecting", source=f"{FUJIMOTO}, sec. 6.1"
    )
    noise_std: float = positive(
        0.1, help="deviation of that noise, where half of an action's range is 1",
        source=f"{FUJIMOTO}, sec. 6.1",
    )  # fmt: skip

    _check_noise = model_validator(mode="after")(_refuse_noise_std_without_noise)


class DDPGConfig(ReplayConfig, ActorCriticConfig):
    """Options of DDPG: TD3's without delay and target noise."""

    learning_rate: ScheduleValue = schedule(
        1e-3, help="Adam's step size, of policy and critic", source="sfujim/TD3"
    )
    tau: float = probability(
        0.005, help="share of the networks in their targets' update", source="sfujim/TD3"
    )
    exploration: Noise = choice(
        "ornstein-uhlenbeck", help="noise on the actions while collecting",
        source=f"{LILLICRAP}, supplement 7",
    )  # fmt: skip
    noise_std: float = positive(
        0.2, help="deviation of that noise, where half of an action's range is 1",
        source=f"{LILLICRAP}, supplement 7",
    )  # fmt: skip

    _check_noise = model_validator(mode="after")(_refuse_noise_std_without_noise)
