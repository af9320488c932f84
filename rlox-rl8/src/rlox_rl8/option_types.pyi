"""Types of the algorithms' options, for editors and type checkers.

Written by ``python rlox-core/option_types.py`` from the configs, which say what each option is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from typing_extensions import Unpack

__all__ = ["RL8PPOOptions", "RL8RecurrentPPOOptions", "Unpack"]

class RL8PPOOptions(TypedDict, total=False):
    """Options of :class:`RL8PPOConfig`."""

    seed: int | None
    preset: str
    env_backend: str
    env_kwargs: Mapping[str, Any]
    n_envs: int
    horizon: int
    horizons_per_env_reset: int
    learning_rate: float
    accumulate_grads: bool
    enable_amp: bool
    entropy_coeff: float
    gae_lambda: float
    gamma: float
    sgd_minibatch_size: int | None
    num_sgd_iters: int
    shuffle_minibatches: bool
    clip_param: float
    vf_clip_param: float
    dual_clip_param: float | None
    vf_coeff: float
    target_kl_div: float | None
    max_grad_norm: float
    normalize_advantages: bool
    normalize_rewards: bool
    lr_schedule_kind: Literal["step", "interp"]
    entropy_coeff_schedule_kind: Literal["step", "interp"]
    device: str
    amp_dtype: Literal["auto", "float16", "bfloat16"]
    compile: bool
    backend: str
    episodic_life: bool
    emulator_threads: int | None
    pool_threads: int | None
    worker_addresses: Sequence[str]
    step_timeout: float
    reset_timeout: float
    worker_restarts: int
    token_file: str | None
    tls_ca: str | None
    tls_cert: str | None
    tls_key: str | None
    physics_threads: int | None
    ray_address: str | None
    ray_cpus: float
    ray_step_timeout: float
    ray_restarts: int

class RL8RecurrentPPOOptions(TypedDict, total=False):
    """Options of :class:`RL8RecurrentPPOConfig`."""

    seed: int | None
    preset: str
    env_backend: str
    env_kwargs: Mapping[str, Any]
    n_envs: int
    horizon: int
    horizons_per_env_reset: int
    learning_rate: float
    accumulate_grads: bool
    enable_amp: bool
    entropy_coeff: float
    gae_lambda: float
    gamma: float
    sgd_minibatch_size: int | None
    num_sgd_iters: int
    shuffle_minibatches: bool
    clip_param: float
    vf_clip_param: float
    dual_clip_param: float | None
    vf_coeff: float
    target_kl_div: float | None
    max_grad_norm: float
    normalize_advantages: bool
    normalize_rewards: bool
    lr_schedule_kind: Literal["step", "interp"]
    entropy_coeff_schedule_kind: Literal["step", "interp"]
    device: str
    amp_dtype: Literal["auto", "float16", "bfloat16"]
    compile: bool
    backend: str
    seq_len: int
    seqs_per_state_reset: int
    episodic_life: bool
    emulator_threads: int | None
    pool_threads: int | None
    worker_addresses: Sequence[str]
    step_timeout: float
    reset_timeout: float
    worker_restarts: int
    token_file: str | None
    tls_ca: str | None
    tls_cert: str | None
    tls_key: str | None
    physics_threads: int | None
    ray_address: str | None
    ray_cpus: float
    ray_step_timeout: float
    ray_restarts: int
