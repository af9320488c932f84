"""The options of all algorithms that learn from a replay buffer while they act."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, TypeVar

from pydantic import JsonValue, model_validator

from rlox.config.clipped import CLIP_REWARDS
from rlox.config.model import (
    BACKEND,
    DEVICE,
    ENV_BACKEND,
    ENV_KWARGS,
    PRESET,
    SEED,
    TORCH_THREADS,
    VECTORIZATION,
    Config,
    ScheduleValue,
    count,
    discount,
    flag,
    option,
    positive,
    schedule,
)

ConfigT = TypeVar("ConfigT", bound="ReplayConfig")

HAARNOJA = "Haarnoja et al. 2018b"
LILLICRAP = "Lillicrap et al. 2016"
MNIH = "Mnih et al. 2015"
SCHAUL = "Schaul et al. 2016"


class ReplayConfig(Config):
    """What is learnt from and how often."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (0.0, 1.0),
        "epsilon": (0.0, 1.0),
        "priority_beta": (0.0, 1.0),
    }

    seed: int | None = SEED
    preset: str = PRESET
    n_envs: int = count(
        1, unit="envs", help="number of envs N stepped together", source="common practice"
    )
    buffer: str = option(
        "uniform", help="replay buffer by registered name", unit="name", source="rlox",
        min_length=1, selects="rlox_buffers",
    )  # fmt: skip
    buffer_size: int = count(
        1_000_000, unit="transitions", help="capacity of the replay buffer", source=MNIH
    )
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
    clip_rewards: float | None = CLIP_REWARDS
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
    env_kwargs: dict[str, JsonValue] = ENV_KWARGS
    vectorization: Literal["sync", "async"] = VECTORIZATION
    device: str = DEVICE
    torch_threads: int | None = TORCH_THREADS

    def scheduled(self: ConfigT) -> ConfigT:
        """Return the config whose schedules hold."""
        return self

    @model_validator(mode="after")
    def _check_replay(self) -> ReplayConfig:
        if self.n_envs > self.buffer_size:
            raise ValueError(
                f"buffer_size {self.buffer_size} holds not even one step of n_envs = {self.n_envs}"
            )
        if self.buffer in ("her", "mmap") and self.n_step > 1:
            raise ValueError(
                f"buffer='{self.buffer}' has transitions of one step, got n_step={self.n_step}; "
                "set n_step=1"
            )
        return self
