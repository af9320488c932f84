"""Configs of the off-policy algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import model_validator
from rlox.config import (
    Config,
    ScheduleValue,
    choice,
    count,
    discount,
    flag,
    option,
    positive,
    probability,
    schedule,
)
from rlox.options import DEVICE, ENV_BACKEND, SEED, TORCH_THREADS, VECTORIZATION

__all__ = ["DQNConfig"]

MNIH = "Mnih et al. 2015"
SCHAUL = "Schaul et al. 2016"
ZOO = "Stable-Baselines3 zoo"


# the same in every config here; pydantic copies them
N_ENVS = count(1, unit="envs", help="number of envs N stepped together", source="common practice")
BUFFER = option(
    "uniform", help="replay buffer by registered name", unit="name", source="rlox", min_length=1
)
PRIORITY_ALPHA = probability(
    0.6, help="exponent α of the priorities of a prioritized buffer", source=f"{SCHAUL}, table 3"
)
PRIORITY_BETA = schedule(
    "linear(0.4, 1.0)", help="exponent β of the weights of a prioritized buffer",
    source=f"{SCHAUL}, table 3",
)  # fmt: skip
N_STEP = count(
    1, unit="env steps", source="Hessel et al. 2018, sec. Multi-step learning",
    help="steps whose rewards a target sums up, or fewer where the episode ends",
)  # fmt: skip
TRAIN_FREQ_HELP = "env steps between learning, all envs counted"
GRADIENT_STEPS_HELP = "gradient steps each time; over train_freq, the update-to-data ratio"
STEPS_PER_ITERATION = count(
    1_000, unit="env steps", source="rlox",
    help="one row of metrics, and one chance to save or evaluate, this often",
)  # fmt: skip
SAVE_REPLAY_BUFFER = flag(
    False, help="checkpoints hold the replay buffer, so that resuming is exact", source="rlox"
)


def check_replay(config: Any) -> None:
    """Refuse options of the replay that contradict each other."""
    if config.n_envs > config.buffer_size:
        raise ValueError(
            f"buffer_size {config.buffer_size} holds not even one step of n_envs = {config.n_envs}"
        )
    if config.learning_starts > config.buffer_size:
        raise ValueError(
            f"learning_starts {config.learning_starts} exceeds buffer_size {config.buffer_size}: "
            "the first transitions would be lost unseen; lower it or enlarge the buffer"
        )
    if config.buffer == "uniform":
        for name in ("priority_alpha", "priority_beta"):
            if str(getattr(config, name)) != str(type(config).model_fields[name].default):
                raise ValueError(f"{name} needs buffer='prioritized', got buffer='uniform'")


class DQNConfig(Config):
    """Options of DQN."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (0.0, 1.0),
        "epsilon": (0.0, 1.0),
        "priority_beta": (0.0, 1.0),
    }

    seed: int | None = SEED
    n_envs: int = N_ENVS
    buffer: str = BUFFER
    buffer_size: int = count(
        100_000, unit="transitions", help="capacity of the replay buffer", source=f"{ZOO}, CartPole"
    )
    learning_starts: int = count(
        1_000, ge=0, unit="env steps", source=f"{ZOO}, CartPole",
        help="uniform actions and no learning until so many transitions are stored",
    )  # fmt: skip
    train_freq: int = count(256, unit="env steps", help=TRAIN_FREQ_HELP, source=f"{ZOO}, CartPole")
    gradient_steps: int = count(
        128, unit="gradient steps", help=GRADIENT_STEPS_HELP, source=f"{ZOO}, CartPole"
    )
    batch_size: int = count(
        64, unit="transitions", help="size of a batch", source=f"{ZOO}, CartPole"
    )
    learning_rate: ScheduleValue = schedule(
        2.3e-3, help="Adam's step size", source=f"{ZOO}, CartPole"
    )
    adam_eps: float = positive(
        1e-8, help="added to the root of Adam's second moment", source="Kingma and Ba 2015"
    )
    max_grad_norm: float | None = positive(
        10.0, help="bound of the gradient's Euclidean norm; none: not clipped",
        source="openai/baselines deepq",
    )  # fmt: skip
    gamma: float = discount(0.99, help="discount factor γ", source=f"{MNIH}, table 1")
    n_step: int = N_STEP
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
    double_q: bool = flag(
        True, help="the network chooses the action that the target network judges",
        source="van Hasselt et al. 2016",
    )  # fmt: skip
    dueling: bool = flag(
        False, help="separate streams for value and advantages", source="Wang et al. 2016"
    )
    priority_alpha: float = PRIORITY_ALPHA
    priority_beta: ScheduleValue = PRIORITY_BETA
    hidden: int = count(
        256, unit="units", help="width of the two hidden layers", source=f"{ZOO}, CartPole"
    )
    steps_per_iteration: int = STEPS_PER_ITERATION
    save_replay_buffer: bool = SAVE_REPLAY_BUFFER
    env_backend: str = ENV_BACKEND
    vectorization: Literal["sync", "async"] = VECTORIZATION
    device: str = DEVICE
    torch_threads: int | None = TORCH_THREADS

    @model_validator(mode="after")
    def _check_replay(self) -> DQNConfig:
        check_replay(self)
        return self
