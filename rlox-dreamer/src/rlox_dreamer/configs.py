"""Config and model sizes of DreamerV3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import model_validator
from rlox.config.model import (
    BACKEND,
    VECTORIZATION,
    EnvRunConfig,
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

CODE = "github.com/danijar/dreamerv3, 2025"
HAFNER = "Hafner et al. 2025"
MISSION = "rlox"

Size = Literal["debug", "1m", "12m", "25m", "50m", "100m", "200m", "400m"]


def _size(
    deter: int, hidden: int, classes: int, depth: int, stoch: int = 32, bins: int = 255
) -> dict[str, int]:
    return {
        "deter_dim": deter, "hidden": hidden, "stoch_dim": stoch, "stoch_classes": classes,
        "units": hidden, "depth": depth, "bins": bins,
    }  # fmt: skip


SIZES: Mapping[str, Mapping[str, int]] = {
    "debug": _size(64, 64, 8, 8, stoch=8, bins=63),
    "1m": _size(512, 64, 4, 4),
    "12m": _size(2048, 256, 16, 16),
    "25m": _size(3072, 384, 24, 24),
    "50m": _size(4096, 512, 32, 32),
    "100m": _size(6144, 768, 48, 48),
    "200m": _size(8192, 1024, 64, 64),
    "400m": _size(12288, 1536, 96, 96),
}
"""Options set by each size; ``debug`` is small enough for tests and simple tasks."""


class DreamerV3Config(EnvRunConfig):
    """Options of DreamerV3."""

    schedule_bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"learning_rate": (0.0, 1.0)}

    n_envs: int = count(
        1, unit="envs", help="number of envs N stepped together", source=f"{CODE}, atari100k"
    )
    size: Size = choice(
        "debug", help="size of all networks; options given explicitly override it",
        source=f"{HAFNER}, table 3",
    )  # fmt: skip
    deter_dim: int = count(
        64, unit="numbers", help="size of the deterministic state", source=MISSION
    )
    stoch_dim: int = count(
        8, unit="categoricals", help="categoricals of the stochastic state", source=MISSION
    )
    stoch_classes: int = count(8, ge=2, unit="classes", help="classes of each", source=MISSION)
    hidden: int = count(
        64, unit="units", help="width of the dynamics' hidden layers", source=f"{HAFNER}, table 3"
    )
    units: int = count(
        64, unit="units", help="width of the hidden layers of encoder, decoder and heads",
        source=f"{HAFNER}, table 3",
    )  # fmt: skip
    depth: int = count(
        8, unit="channels", help="channels of convolutions, times 2, 3, 4 and 4", source=CODE
    )
    blocks: int = count(
        8, unit="blocks", help="blocks of the recurrent layer; must divide deter_dim", source=CODE
    )
    encoder_layers: int = count(
        3, unit="layers", help="hidden layers of vectors' encoder and decoder", source=CODE
    )
    head_layers: int = count(
        3, unit="layers", help="hidden layers of policy and value; reward and continue have one",
        source=CODE,
    )  # fmt: skip
    bins: int = count(
        63,
        ge=3,
        unit="bins",
        source=f"{MISSION}; {HAFNER} has 255, as all sizes but debug",
        help="bins of predicted rewards and values",
    )
    encoder_keys: tuple[str, ...] | None = option(
        None, help="leaves of nested observations to encode; None: all", unit="names",
        source=CODE,
    )  # fmt: skip
    decoder_keys: tuple[str, ...] | None = option(
        None, help="leaves to reconstruct; None: all", unit="names", source=CODE
    )
    unimix: float = probability(
        0.01, help="share of the uniform distribution in the state's categoricals", source=HAFNER
    )
    policy_unimix: float = probability(
        0.01, help="the same in a discrete policy; the authors' code has 0", source=HAFNER
    )
    normalize_observations: bool = flag(
        True, source="rlox; the paper and the presets do not",
        help="subtract the running mean from float observations and divide by their deviation",
    )  # fmt: skip
    imagination_horizon: int = count(
        5, unit="steps", help="imagined steps from every replayed state", source=MISSION
    )
    buffer: str = option(
        "sequence", help="replay buffer of sequences by registered name", unit="name",
        source="rlox", min_length=1, selects="rlox_buffers",
    )  # fmt: skip
    buffer_size: int = count(
        10_000, unit="env steps", help="capacity of the replay buffer", source=MISSION
    )
    batch_size: int = count(32, unit="sequences", help="sequences of a batch", source=MISSION)
    seq_len: int = count(16, ge=2, unit="steps", help="steps of a sequence", source=MISSION)
    train_ratio: float = positive(
        256.0, unit="replayed steps per env step",
        help="updates per env step, times batch_size times seq_len", source=CODE,
    )  # fmt: skip
    learning_starts: int = count(
        1_000, ge=0, unit="env steps", help="stored steps before learning begins",
        source=MISSION,
    )  # fmt: skip
    learning_rate: ScheduleValue = schedule(3e-4, help="LaProp's step size", source=MISSION)
    warmup: int = count(
        100, ge=0, unit="gradient steps", help="updates over which the step size rises from 0",
        source=f"{CODE}, which has 1000",
    )  # fmt: skip
    agc: float = positive(
        0.3, help="bound of a gradient's norm, as a share of its parameter's norm", source=CODE
    )
    gamma: float = discount(0.99, help="discount factor γ", source=MISSION)
    return_lambda: float = discount(0.95, help="λ of the returns", source=HAFNER)
    entropy: float = coefficient(3e-4, unit="per nat", help="entropy bonus η", source=HAFNER)
    kl_balance: float = probability(
        0.8, help="weight w of the dynamics loss; the representation loss has 1 - w",
        source=MISSION,
    )  # fmt: skip
    dyn_scale: float | None = coefficient(
        None, help="weight of the dynamics loss; None: kl_balance", source=HAFNER
    )
    rep_scale: float | None = coefficient(
        None, help="weight of the representation loss; None: 1 - kl_balance", source=HAFNER
    )
    free_nats: float = coefficient(
        1.0, unit="nats", help="divergence per state without cost", source=HAFNER
    )
    slow_rate: float = probability(
        0.02, help="the critic's share in each update of the slow critic", source=HAFNER
    )
    slow_target: bool = flag(False, help="bootstrap returns from the slow critic", source=CODE)
    replay_value_scale: float = coefficient(
        0.3, help="weight of the critic's loss on replayed rewards", source=HAFNER
    )
    replay_context: bool = flag(
        True, help="start sequences from stored states, updated after learning; else from 0",
        source=CODE,
    )  # fmt: skip
    online_queue: bool = flag(
        True, help="draw each new sequence once before any other", source=HAFNER
    )
    steps_per_iteration: int = count(
        500, unit="env steps", source="rlox",
        help="interval of metrics, and of opportunities to save or evaluate",
    )  # fmt: skip
    save_replay_buffer: bool = flag(
        False, help="save the replay buffer in checkpoints, for exact resuming", source="rlox"
    )
    compute_dtype: Literal["float32", "bfloat16"] = choice(
        "float32", help="precision of the networks; parameters are float32", source=CODE
    )
    backend: str = BACKEND
    vectorization: Literal["sync", "async"] = VECTORIZATION
    latent_dim: int | None = option(
        None, unit="numbers", source=MISSION,
        help="ignored: the size of the features follows from deter_dim and others",
    )  # fmt: skip
    obs_dim: int | None = count(
        None, unit="numbers", help="size of an observation; derived, and checked if given",
        source=MISSION,
    )  # fmt: skip
    n_actions: int | None = count(
        None, unit="actions", help="number of actions, or size of one; derived, checked if given",
        source=MISSION,
    )  # fmt: skip

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: Any) -> Any:
        """Let explicit options override the size's."""
        if not isinstance(values, Mapping) or "size" not in values:
            return values
        return {**SIZES.get(values["size"], {}), **values}

    @model_validator(mode="after")
    def _check(self) -> DreamerV3Config:
        if self.deter_dim % self.blocks:
            raise ValueError(
                f"blocks must divide deter_dim, got blocks={self.blocks}, "
                f"deter_dim={self.deter_dim}"
            )
        if self.buffer_size // self.n_envs <= self.seq_len:
            raise ValueError(
                f"buffer_size must hold more than seq_len={self.seq_len} steps of each of "
                f"{self.n_envs} envs, got {self.buffer_size}"
            )
        return self
