"""Options of the frames: rollouts, the clipped surrogate, and replay buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from rlox.config.model import (
    BACKEND,
    COMPUTE_DTYPE,
    VECTORIZATION,
    Activation,
    Config,
    Conv,
    EnvRunConfig,
    MaybeWidths,
    ScheduleValue,
    Widths,
    changed,
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

SCHULMAN = "Schulman et al. 2017"
HUANG = "Huang et al. 2022, The 37 implementation details of PPO"
NETWORK = choice(
    "auto", help="how boxes become features: by their space, all flattened, or all as images",
    source="rlox",
)  # fmt: skip
CLIP_REWARDS = positive(
    None, help="bound of the rewards' sizes in learning; None: none", unit="reward",
    source="Mnih et al. 2015, Methods, where it is 1",
)  # fmt: skip
SHARED = flag(
    False, help="policy and state values share the hidden layers", source=f"{HUANG}, detail 13"
)


CONV = option(
    "auto", help="convolutions over images: auto takes nature or, below 36 pixels, minatar; or of "
    "each one its filters, their size and stride in pixels", unit="choice", source="rlox",
)  # fmt: skip


def activation(default: str, *, source: str) -> Any:
    """Return the choice of an activation."""
    return choice(default, help="function after each hidden layer", source=source)


class NetworkConfig(Config):
    """Options of the layers of default networks."""

    hidden: Widths = widths(64, source=f"{SCHULMAN}, sec. 6.1")
    activation: Activation = activation("tanh", source=f"{HUANG}, detail 2")
    layer_norm: bool = flag(
        False, help="normalise the outputs of each hidden layer before the activation",
        source="Ba et al. 2016",
    )  # fmt: skip
    gain: float | None = positive(
        None, help="scale of hidden layers' orthogonal weights; None: √2 next to heads of 0.01 and "
        "1 in policies for rollouts, else weights are uniform in ±1/√fan-in", unit="1",
        source=f"{HUANG}, detail 2",
    )  # fmt: skip


class ActorCriticConfig(NetworkConfig):
    """Options of the layers of default actors and critics."""

    critic_hidden: MaybeWidths = option(
        None, help="widths of critics and state values; None: as hidden", unit="units",
        source="rlox",
    )  # fmt: skip


class ActingConfig(ActorCriticConfig, EnvRunConfig):
    """Options of policies that act while they learn: what they see, and default networks."""

    network: Literal["auto", "mlp", "cnn"] = NETWORK
    conv: Conv = CONV
    recurrent: Literal["none", "lstm", "gru"] = choice(
        "none", help="kind of the policy's memory", source=f"{HUANG}, LSTM details"
    )
    memory_size: int = count(
        64, unit="units", help="size of the memory, one each for policy and value", source="rlox"
    )
    log_std: float = option(
        0.0, help="initial logarithm of the standard deviation of actions that are real numbers",
        unit="1", source=f"{HUANG}, continuous detail 2; -0.5 in Tianshou", ge=-20.0, le=2.0,
    )  # fmt: skip
    normalize_observations: bool = flag(
        False, help="normalise boxes of floats by running moments, clip to ±10",
        source=f"{HUANG}, continuous details 6 and 7",
    )  # fmt: skip
    clip_rewards: float | None = CLIP_REWARDS
    frame_stack: int = count(
        1, unit="env steps", help="number of last observations that are seen as one",
        source=f"{HUANG}, Atari detail 8",
    )  # fmt: skip
    backend: str = BACKEND
    vectorization: Literal["sync", "async"] = VECTORIZATION

    @model_validator(mode="after")
    def _check_memory(self) -> ActingConfig:
        if self.recurrent == "none" and changed(self, "memory_size"):
            raise ValueError("memory_size needs recurrent='lstm' or 'gru', got recurrent='none'")
        return self


class RolloutConfig(ActingConfig):
    """Base of the configs of algorithms that learn from rollouts; PPO's defaults."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"learning_rate": (0.0, 1.0)}

    n_envs: int = count(
        8, unit="envs", help="number of envs N stepped together", source=f"{SCHULMAN}, table 5"
    )
    n_steps: int = count(
        128, unit="env steps per env", help="rollout length T", source=f"{SCHULMAN}, table 5"
    )
    learning_rate: ScheduleValue = schedule(
        "linear(1e-3, 0)", help="Adam's step size", source=f"{HUANG}, detail 4"
    )
    gamma: float = discount(0.99, help="discount factor γ", source=f"{SCHULMAN}, table 3")
    gae_lambda: float = discount(0.95, help="trace decay λ of GAE", source=f"{SCHULMAN}, table 3")
    max_grad_norm: float = positive(
        0.5, help="bound of the gradient's Euclidean norm", source=f"{HUANG}, detail 11"
    )
    normalize_rewards: bool = flag(
        False, help="divide rewards by the deviation of discounted returns, clip to ±10",
        source=f"{HUANG}, continuous details 8 and 9",
    )  # fmt: skip
    compute_dtype: Literal["float32", "bfloat16"] = COMPUTE_DTYPE
    matmul_precision: Literal["highest", "high"] = choice(
        "highest", source="torch",
        help="precision of float32 matrix products on a GPU, for the whole process; high is TF32",
    )  # fmt: skip

    @model_validator(mode="after")
    def _check_rollouts(self) -> RolloutConfig:
        if self.normalize_rewards and self.clip_rewards is not None:
            raise ValueError(
                f"clip_rewards={self.clip_rewards} and normalize_rewards=True are two ways to "
                "bound rewards; leave one of them out"
            )
        return self


class ClippedSurrogateConfig(RolloutConfig):
    """Base of the configs of algorithms that minimise the clipped surrogate; PPO's defaults."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (0.0, 1.0),
        "clip_eps": (0.0, 1.0),
        "ent_coef": (0.0, float("inf")),
    }

    n_epochs: int = count(
        10, unit="epochs", help="passes over each rollout", source=f"{SCHULMAN}, table 3"
    )
    batch_size: int = count(
        256, unit="rows",
        help="minibatch size, at most the rollout's; an epoch's last has the remainder",
        source=f"{SCHULMAN}, table 5",
    )  # fmt: skip
    adam_eps: float = positive(
        1e-5, help="added to the root of Adam's second moment", source=f"{HUANG}, detail 3"
    )
    clip_eps: ScheduleValue = schedule(
        0.2, help="clip range ε of the probability ratio", source=f"{SCHULMAN}, table 1"
    )
    vf_coef: float = coefficient(
        0.5, help="weight c_1 of the value loss", source=f"{HUANG}, detail 10"
    )
    ent_coef: ScheduleValue = schedule(
        0.0, help="weight c_2 of the entropy bonus", unit="1/nats", source=f"{SCHULMAN}, table 3"
    )
    normalize_advantages: bool = flag(
        True, help="standardise advantages within each minibatch", source=f"{HUANG}, detail 7"
    )
    vf_clip_eps: float | None = positive(
        None, help="range of the value clip, in units of the return; None: not clipped",
        unit="return", source="openai/baselines ppo2; off, Andrychowicz et al. 2021",
    )  # fmt: skip
    dual_clip: float | None = option(
        None, help="bound of the objective at negative advantages; None: not clipped",
        unit="1", source="Ye et al. 2020, eq. 5, where it is 3", gt=1.0,
    )  # fmt: skip
    target_kl: float | None = positive(
        None, help="stops the epochs when the approximate KL passes 1.5 times this; None: never",
        unit="nats", source="openai/spinningup ppo",
    )  # fmt: skip

    @property
    def steps_of_sequence(self) -> tuple[str, int]:
        """Name and value of the option for the length of a memory's sequences."""
        return "n_steps", self.n_steps

    @property
    def rows_depend_on_env(self) -> bool:
        """Whether a rollout's number of rows may differ from ``n_envs * n_steps``."""
        return False

    @model_validator(mode="after")
    def _check_options(self) -> ClippedSurrogateConfig:
        rollout = self.n_envs * self.n_steps
        if "batch_size" not in self.model_fields_set and self.batch_size > rollout:
            # bypasses the model, which is frozen and would count the option as given
            self.__dict__["batch_size"] = rollout
        if self.rows_depend_on_env:
            return self
        if self.batch_size > rollout:
            raise ValueError(
                f"batch_size {self.batch_size} exceeds the rollout's n_envs * n_steps = "
                f"{self.n_envs} * {self.n_steps} = {rollout} rows; lower it or lengthen the rollout"
            )
        name, length = self.steps_of_sequence
        if self.recurrent != "none" and self.batch_size % length:
            raise ValueError(
                f"batch_size {self.batch_size} is not a multiple of {name} {length}; "
                "the minibatches of a recurrent policy are whole sequences"
            )
        if self.normalize_advantages and 1 in (self.batch_size, rollout % self.batch_size):
            raise ValueError(
                f"batch_size {self.batch_size} makes a minibatch of one of the rollout's {rollout} "
                "rows, whose advantage cannot be standardised; choose a divisor above 1 or turn "
                "normalize_advantages off"
            )
        return self


HAARNOJA = "Haarnoja et al. 2018b"
LILLICRAP = "Lillicrap et al. 2016"
MNIH = "Mnih et al. 2015"
SCHAUL = "Schaul et al. 2016"


class ReplayConfig(NetworkConfig, EnvRunConfig):
    """What is learnt from and how often."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {
        "learning_rate": (0.0, 1.0),
        "epsilon": (0.0, 1.0),
        "priority_beta": (0.0, 1.0),
    }

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
        help="transitions to collect by uniform actions before learning starts",
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
    learning_rate: ScheduleValue = schedule(
        3e-4, help="Adam's step size, of all networks", source=f"{HAARNOJA}, table 1"
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
    hidden: Widths = widths(256, source=f"{HAARNOJA}, table 1")
    activation: Activation = activation("relu", source=f"{HAARNOJA}, table 1")
    conv: Conv = CONV
    steps_per_iteration: int = count(
        1_000, unit="env steps", source="rlox",
        help="one row of metrics, and one chance to save or evaluate, this often",
    )  # fmt: skip
    save_replay_buffer: bool = flag(
        False, help="checkpoints hold the replay buffer, so that resuming is exact", source="rlox"
    )
    backend: str = BACKEND
    vectorization: Literal["sync", "async"] = VECTORIZATION

    @model_validator(mode="after")
    def _check_replay(self) -> ReplayConfig:
        if self.n_envs > self.buffer_size:
            raise ValueError(
                f"buffer_size {self.buffer_size} holds not even one step of n_envs = {self.n_envs}"
            )
        return self
