"""Configs of the off-policy algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import model_validator
from rlox.config import (
    Config,
    ScheduleValue,
    choice,
    coefficient,
    count,
    discount,
    flag,
    option,
    positive,
    probability,
    schedule,
)
from rlox.options import BACKEND, DEVICE, ENV_BACKEND, SEED, TORCH_THREADS, VECTORIZATION

__all__ = ["DDPGConfig", "DQNConfig", "ReplayConfig", "SACConfig", "TD3Config"]

FUJIMOTO = "Fujimoto et al. 2018"
HAARNOJA = "Haarnoja et al. 2018b"
LILLICRAP = "Lillicrap et al. 2016"
MNIH = "Mnih et al. 2015"
SCHAUL = "Schaul et al. 2016"
ZOO = "Stable-Baselines3 zoo"

Noise = Literal["none", "gaussian", "ornstein-uhlenbeck"]


class ReplayConfig(Config):
    """Options that all off-policy algorithms have, about what they learn from and how often."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (0.0, 1.0),
        "epsilon": (0.0, 1.0),
        "priority_beta": (0.0, 1.0),
    }

    seed: int | None = SEED
    n_envs: int = count(
        1, unit="envs", help="number of envs N stepped together", source="common practice"
    )
    buffer: str = option(
        "uniform", help="replay buffer by registered name", unit="name", source="rlox", min_length=1
    )
    buffer_size: int = count(
        1_000_000, unit="transitions", help="capacity of the replay buffer", source=MNIH
    )
    priority_alpha: float = probability(
        0.6, help="exponent α of the priorities of a prioritized buffer",
        source=f"{SCHAUL}, table 3",
    )  # fmt: skip
    priority_beta: ScheduleValue = schedule(
        "linear(0.4, 1.0)", help="exponent β of the weights of a prioritized buffer",
        source=f"{SCHAUL}, table 3",
    )  # fmt: skip
    learning_starts: int = count(
        1_000, ge=0, unit="env steps", source="softlearning",
        help="uniform actions and no learning until so many transitions are stored",
    )  # fmt: skip
    train_freq: int = count(
        1, unit="env steps", help="env steps between learning, all envs counted",
        source=f"{LILLICRAP}, algorithm 1",
    )  # fmt: skip
    gradient_steps: int = count(
        1, unit="gradient steps", source=f"{LILLICRAP}, algorithm 1",
        help="gradient steps each time; over train_freq, the update-to-data ratio",
    )  # fmt: skip
    batch_size: int = count(
        256, unit="transitions", help="size of a batch", source=f"{HAARNOJA}, table 1"
    )
    adam_eps: float = positive(
        1e-8, help="added to the root of Adam's second moment", source="Kingma and Ba 2015"
    )
    gamma: float = discount(0.99, help="discount factor γ", source=f"{MNIH}, table 1")
    n_step: int = count(
        1, unit="env steps", source="Hessel et al. 2018, sec. Multi-step learning",
        help="steps whose rewards a target sums up, or fewer where the episode ends",
    )  # fmt: skip
    hidden: int = count(
        256, unit="units", help="width of the two hidden layers", source=f"{HAARNOJA}, table 1"
    )
    steps_per_iteration: int = count(
        1_000, unit="env steps", source="rlox",
        help="one row of metrics, and one chance to save or evaluate, this often",
    )  # fmt: skip
    save_replay_buffer: bool = flag(
        False, help="checkpoints hold the replay buffer, so that resuming is exact", source="rlox"
    )
    backend: str = BACKEND
    env_backend: str = ENV_BACKEND
    vectorization: Literal["sync", "async"] = VECTORIZATION
    device: str = DEVICE
    torch_threads: int | None = TORCH_THREADS

    @model_validator(mode="after")
    def _check_replay(self) -> ReplayConfig:
        if self.n_envs > self.buffer_size:
            raise ValueError(
                f"buffer_size {self.buffer_size} holds not even one step of n_envs = {self.n_envs}"
            )
        if self.learning_starts > self.buffer_size:
            raise ValueError(
                f"learning_starts {self.learning_starts} exceeds buffer_size {self.buffer_size}: "
                "the first transitions would be lost unseen; lower it or enlarge the buffer"
            )
        if self.buffer == "uniform":
            for name in ("priority_alpha", "priority_beta"):
                if _changed(self, name):
                    raise ValueError(f"{name} needs buffer='prioritized', got buffer='uniform'")
        return self


def _changed(config: Config, name: str) -> bool:
    """Whether an option is not its default; a schedule's text is that of its default."""
    return str(getattr(config, name)) != str(type(config).model_fields[name].default)


def _refuse_noise_std_without_noise(config: Any) -> None:
    if config.exploration == "none" and _changed(config, "noise_std"):
        raise ValueError(
            "noise_std needs exploration='gaussian' or 'ornstein-uhlenbeck', got exploration='none'"
        )


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
        10.0, help="bound of the gradient's Euclidean norm; none: not clipped",
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
    epsilon: ScheduleValue = schedule(
        "linear(1, 0.04, 8000)", help="probability ε of a uniform action",
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


class SACConfig(ReplayConfig):
    """Options of SAC."""

    learning_rate: ScheduleValue = schedule(
        3e-4, help="Adam's step size, of policy, critics and temperature",
        source=f"{HAARNOJA}, table 1",
    )  # fmt: skip
    tau: float = probability(
        0.005, help="share of the critics in their targets' update", source=f"{HAARNOJA}, table 1"
    )
    alpha: float = positive(
        1.0, help="temperature, or its initial value where it is learnt", unit="return/nats",
        source="softlearning",
    )  # fmt: skip
    auto_entropy: bool = flag(
        True, help="learn the temperature for the target entropy", source=f"{HAARNOJA}, sec. 5"
    )
    target_entropy: float | None = option(
        None, help="entropy of actions in [-1, 1] to keep; none: minus their dimensions",
        unit="nats", source=f"{HAARNOJA}, table 1",
    )  # fmt: skip
    exploration: Noise = choice(
        "none", help="noise on the actions while collecting, besides the policy's own",
        source="Stable-Baselines3",
    )  # fmt: skip
    noise_std: float = positive(
        0.1, help="deviation of that noise, where half of an action's range is 1",
        source=f"{FUJIMOTO}, sec. 6.1",
    )  # fmt: skip

    @model_validator(mode="after")
    def _check_options(self) -> SACConfig:
        _refuse_noise_std_without_noise(self)
        if not self.auto_entropy and self.target_entropy is not None:
            raise ValueError("target_entropy needs auto_entropy=True, got auto_entropy=False")
        return self


class TD3Config(ReplayConfig):
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

    @model_validator(mode="after")
    def _check_options(self) -> TD3Config:
        _refuse_noise_std_without_noise(self)
        return self


class DDPGConfig(ReplayConfig):
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

    @model_validator(mode="after")
    def _check_options(self) -> DDPGConfig:
        _refuse_noise_std_without_noise(self)
        return self
