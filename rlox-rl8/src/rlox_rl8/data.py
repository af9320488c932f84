"""Keys, statistics, hyperparameters and counters of the algorithms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, TypedDict

import torch
from rlox.errors import ConfigError

from rlox_rl8.configs import RL8RecurrentPPOConfig

Device = str | torch.device
"""A torch device or its name."""

ScheduleKind = Literal["interp", "step"]
"""Interpolate between the points of a schedule, or jump and hold."""

AmpDtype = Literal["auto", "float16", "bfloat16"]
"""Networks' dtype under ``enable_amp``; auto is bfloat16 on a CPU, else float16."""


OPTIONS = RL8RecurrentPPOConfig.model_fields.keys() - {"device", "horizon"}
"""Hyperparameters checked by rlox's options; a horizon may be longer here."""


class DataKeys:
    """Names of a batch's entries."""

    OBS = "obs"
    REWARDS = "rewards"
    RETURNS = "returns"
    REVERSED_DISCOUNTED_RETURNS = "reversed_discounted_returns"
    FEATURES = "features"
    ACTIONS = "actions"
    LOGP = "logp"
    VALUES = "values"
    INPUTS = "inputs"
    PADDING_MASK = "padding_mask"
    VIEWS = "views"
    ADVANTAGES = "advantages"
    STATES = "states"
    HIDDEN_STATES = "hidden_states"
    CELL_STATES = "cell_states"


CollectStats = TypedDict(
    "CollectStats",
    {
        "env/resets": int, "env/steps": int, "profiling/collect_ms": float,
        "returns/min": float, "returns/max": float, "returns/mean": float, "returns/std": float,
        "rewards/min": float, "rewards/max": float, "rewards/mean": float, "rewards/std": float,
    },
)  # fmt: skip
"""Statistics of one ``collect()``: ``returns`` are each env's undiscounted sums of rewards in this
horizon."""

StepStats = TypedDict(
    "StepStats",
    {
        "coefficients/entropy": float, "coefficients/vf": float,
        "losses/entropy": float, "losses/policy": float, "losses/vf": float, "losses/total": float,
        "monitors/kl_div": float, "profiling/step_ms": float,
    },
)  # fmt: skip
"""Statistics of one ``step()``: means over its optimiser steps."""

MemoryStats = TypedDict(
    "MemoryStats", {"memory/free": float, "memory/total": float, "memory/percent": float}
)
"""Memory of the device in bytes, and the percentage in use."""


TrainerState = TypedDict(
    "TrainerState", {"algorithm/collects": int, "algorithm/steps": int, "env/steps": int}
)
"""Counters of a trainer."""

EvalCollectStats = TypedDict(  # type: ignore[misc]
    "EvalCollectStats", {f"eval/{key}": kind for key, kind in CollectStats.__annotations__.items()}
)
"""Statistics of an evaluation."""


class TrainStats(CollectStats, MemoryStats, StepStats, TrainerState):
    """All statistics of a trainer's step."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmHparams:
    """Constants of a training; see :class:`rlox_rl8.AlgorithmConfig`."""

    unit: ClassVar[str] = "transitions"
    """Unit of minibatch sizes."""

    accumulate_grads: bool
    amp_dtype: AmpDtype = "auto"
    clip_param: float
    compile: bool = False
    device: torch.device
    dual_clip_param: float | None
    enable_amp: bool
    gae_lambda: float
    gamma: float
    horizon: int
    horizons_per_env_reset: int
    max_grad_norm: float
    normalize_advantages: bool
    normalize_rewards: bool
    num_envs: int
    num_sgd_iters: int
    sgd_minibatch_size: int
    shuffle_minibatches: bool
    target_kl_div: float | None
    vf_clip_param: float
    vf_coeff: float

    @property
    def device_type(self) -> str:
        """Kind of the device, ``"cpu"`` or ``"cuda"``."""
        return self.device.type

    @property
    def half(self) -> torch.dtype:
        """Networks' dtype under ``enable_amp``."""
        if self.amp_dtype == "auto":
            return torch.bfloat16 if self.device_type == "cpu" else torch.float16
        return torch.bfloat16 if self.amp_dtype == "bfloat16" else torch.float16

    @property
    def num_samples(self) -> int:
        """Samples, or sequences, of one buffer."""
        return self.num_envs * self.horizon

    @property
    def num_minibatches(self) -> int:
        """Minibatches of one pass over the buffer."""
        return self.num_samples // self.sgd_minibatch_size

    def validate(self) -> None:
        """Check ranges and combinations.

        Raises:
            ConfigError: a number is out of range, or two options exclude each other.
        """
        for name in ("num_envs", "horizon"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)}")
        numbers = {k: v for k, v in vars(self).items() if k in OPTIONS and v != math.inf}
        RL8RecurrentPPOConfig(**numbers)
        for name in ("horizons_per_env_reset", "seqs_per_state_reset"):
            if getattr(self, name, 1) == 0:
                raise ConfigError(f"{name} must be positive, or negative for never, got 0")
        if self.amp_dtype == "float16" and self.device_type == "cpu":
            raise ConfigError("amp_dtype 'float16' needs a GPU, got device 'cpu'; use 'bfloat16'")
        for name in ("accumulate_grads", "enable_amp"):
            if self.target_kl_div is not None and getattr(self, name):
                raise ConfigError(f"target_kl_div and {name} exclude each other; leave one out")
        self._validate_minibatches()

    def _validate_minibatches(self) -> None:
        if self.num_samples % self.sgd_minibatch_size:
            raise ConfigError(
                f"sgd_minibatch_size must divide the buffer's {self.num_samples} "
                f"{self.unit}, got {self.sgd_minibatch_size}"
            )
        if self.accumulate_grads and self.num_minibatches < 2:
            raise ConfigError(
                "accumulate_grads needs several minibatches, got one; lower sgd_minibatch_size"
            )


@dataclass(frozen=True, kw_only=True)
class RecurrentAlgorithmHparams(AlgorithmHparams):
    """The same with sequences; see :class:`rlox_rl8.RecurrentAlgorithmConfig`."""

    unit = "sequences"

    seq_len: int
    seqs_per_state_reset: int

    @property
    def num_samples(self) -> int:
        """Sequences of one buffer."""
        return self.num_envs * (self.horizon // self.seq_len)

    def _validate_minibatches(self) -> None:
        if self.horizon % self.seq_len:
            raise ConfigError(f"seq_len must divide horizon {self.horizon}, got {self.seq_len}")
        every = self.seqs_per_state_reset
        if every > 0 and (self.horizon * self.horizons_per_env_reset) % (self.seq_len * every):
            raise ConfigError(
                "seq_len * seqs_per_state_reset must divide horizon * horizons_per_env_reset, got "
                f"{self.seq_len} * {every} and {self.horizon} * {self.horizons_per_env_reset}"
            )
        super()._validate_minibatches()


@dataclass(kw_only=True)
class AlgorithmState:
    """Counters of one algorithm."""

    buffered: bool = False
    """Whether the buffer holds transitions to learn from."""
    horizons: int = 0
    """Completed ``collect()`` calls."""
    reward_scale: float = 1.0
    """Standard deviation of the reversed discounted returns of the last ``collect()``."""
    transitions: int = 0
    """Env steps learnt from; schedules run over them."""


@dataclass(kw_only=True)
class RecurrentAlgorithmState(AlgorithmState):
    """The same, with sequences."""

    seqs: int = 0
    """Sequences collected so far."""
