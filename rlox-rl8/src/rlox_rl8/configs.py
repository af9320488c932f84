"""Configs of the algorithms; importable without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue
from rlox.config.model import (
    BACKEND,
    ENV_BACKEND,
    ENV_KWARGS,
    PRESET,
    SEED,
    Config,
    choice,
    coefficient,
    count,
    flag,
    option,
    positive,
)

RL8 = "rl8 1.0.0"
PPO = "Schulman et al. 2017"


class BatchedPPOConfig(Config):
    """Options of both kinds."""

    seed: int | None = SEED
    preset: str = PRESET
    env_backend: str = ENV_BACKEND
    env_kwargs: dict[str, JsonValue] = ENV_KWARGS
    n_envs: int = count(8192, unit="envs", help="number of copies B in the env", source=RL8)
    horizon: int = count(32, unit="env steps per env", help="steps T of one iteration", source=RL8)
    horizons_per_env_reset: int = option(
        1, help="iterations between resets of all envs; negative resets once", unit="iterations",
        source=RL8,
    )  # fmt: skip
    learning_rate: float = positive(1e-3, help="the optimiser's step size", source=RL8)
    accumulate_grads: bool = flag(
        False, help="add up the gradients of a pass's minibatches for one step", source=RL8
    )
    enable_amp: bool = flag(False, help="learn in half precision", source=RL8)
    entropy_coeff: float = coefficient(0.0, help="weight c_H of the entropy", source=PPO)
    gae_lambda: float = option(
        0.95, help="trace decay λ", unit="1", source="Schulman et al. 2016", gt=0.0, le=1.0
    )
    gamma: float = option(0.95, help="discount factor γ", unit="1", source=RL8, gt=0.0, le=1.0)
    sgd_minibatch_size: int | None = count(
        None, unit="samples", source=RL8,
        help="samples of a minibatch; left out: all, or if episodes end the greatest divisor of "
        "their number up to 256 (64 sequences of a recurrent policy)",
    )  # fmt: skip
    num_sgd_iters: int = count(4, help="passes over the samples", unit="passes", source=RL8)
    shuffle_minibatches: bool = flag(True, help="shuffle samples in each pass", source=RL8)
    clip_param: float = option(
        0.2, help="bound c of the ratio's distance from 1", unit="1", source=PPO, gt=0.0, lt=1.0
    )
    vf_clip_param: float = positive(5.0, help="bound v of the value loss", source=RL8)
    dual_clip_param: float | None = option(
        None, help="bound d of the ratio if the advantage is negative", unit="1",
        source="Ye et al. 2020, eq. 4", gt=1.0,
    )  # fmt: skip
    vf_coeff: float = positive(1.0, help="weight c_V of the value loss", source=RL8)
    target_kl_div: float | None = positive(
        None, help="learning stops above 1.5 times this divergence", unit="nats", source=RL8
    )
    max_grad_norm: float = positive(5.0, help="bound of the gradient's Euclidean norm", source=RL8)
    normalize_advantages: bool = flag(
        True, help="give advantages mean 0 and deviation 1", source=RL8
    )
    normalize_rewards: bool = flag(
        True, help="divide rewards by the deviation of the discounted returns so far",
        source="Engstrom et al. 2020, sec. 3",
    )  # fmt: skip
    lr_schedule_kind: Literal["step", "interp"] = choice(
        "step", help="jump between the points of a schedule, or interpolate", source=RL8
    )
    entropy_coeff_schedule_kind: Literal["step", "interp"] = choice(
        "step", help="jump between the points of a schedule, or interpolate", source=RL8
    )
    device: str = option("auto", help="torch device; auto prefers CUDA", unit="name", source=RL8)
    amp_dtype: Literal["auto", "float16", "bfloat16"] = choice(
        "auto", help="half precision of networks; auto is bfloat16 on a CPU, else float16",
        source="torch.autocast",
    )  # fmt: skip
    compile: bool = flag(
        False, help="compile the env's step and the losses; the first calls take long",
        source="torch.compile",
    )  # fmt: skip


class RL8PPOConfig(BatchedPPOConfig):
    """Options of RL8PPO."""

    backend: str = BACKEND


class RL8RecurrentPPOConfig(BatchedPPOConfig):
    """Options of RL8RecurrentPPO; minibatches are counted in sequences."""

    seq_len: int = count(
        4, unit="env steps", help="steps that a gradient goes back through", source=RL8
    )
    seqs_per_state_reset: int = option(
        8, help="sequences between resets of the states; negative never", unit="sequences",
        source=RL8,
    )  # fmt: skip
