"""Arguments that both algorithms' configs have, in the order of rl8 1.0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rlox_rl8.data import AmpDtype, Device, ScheduleKind
from rlox_rl8.distributions import Distribution

__all__ = ["Collecting", "Learning", "Sequences"]

Schedule = list[tuple[int, float]]


@dataclass
class Collecting:
    """The policy and the envs; these come first."""

    model: Any = None
    model_cls: Any = None
    model_config: dict[str, Any] | None = None
    distribution_cls: type[Distribution] | None = None
    horizon: int = 32
    horizons_per_env_reset: int = 1
    num_envs: int = 8192


@dataclass
class Sequences:
    """What recurrent policies learn from; these follow."""

    seq_len: int = 4
    seqs_per_state_reset: int = 8


@dataclass
class Learning:
    """The optimiser, the losses and the device; these come last."""

    optimizer_cls: type[torch.optim.Optimizer] = torch.optim.Adam
    optimizer_config: dict[str, Any] | None = None
    accumulate_grads: bool = False
    enable_amp: bool = False
    lr_schedule: Schedule | None = None
    lr_schedule_kind: ScheduleKind = "step"
    entropy_coeff: float = 0.0
    entropy_coeff_schedule: Schedule | None = None
    entropy_coeff_schedule_kind: ScheduleKind = "step"
    gae_lambda: float = 0.95
    gamma: float = 0.95
    sgd_minibatch_size: int | None = None
    num_sgd_iters: int = 4
    shuffle_minibatches: bool = True
    clip_param: float = 0.2
    vf_clip_param: float = 5.0
    dual_clip_param: float | None = None
    vf_coeff: float = 1.0
    target_kl_div: float | None = None
    max_grad_norm: float = 5.0
    normalize_advantages: bool = True
    normalize_rewards: bool = True
    device: Device = "auto"
    amp_dtype: AmpDtype = "auto"
    compile: bool = False
    backend: str = "auto"
