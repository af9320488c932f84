"""Types of the algorithms' options, for editors and type checkers.

Written by ``python rlox-core/option_types.py`` from the configs, which say what each option is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from rlox.config.schedules import ScheduleOption
from typing_extensions import Unpack

__all__ = ["A2COptions", "APPOOptions", "HybridPPOOptions", "IMPALAOptions", "PPOOptions", "Unpack"]

class A2COptions(TypedDict, total=False):
    """Options of :class:`A2CConfig`."""

    preset: str
    n_steps: int
    learning_rate: ScheduleOption
    rmsprop_alpha: float
    rmsprop_eps: float
    gamma: float
    gae_lambda: float
    vf_coef: float
    ent_coef: ScheduleOption
    max_grad_norm: float
    normalize_advantages: bool
    hidden: int
    network: Literal["auto", "mlp", "cnn"]
    recurrent: Literal["none", "lstm", "gru"]
    memory_size: int
    normalize_observations: bool
    normalize_rewards: bool
    clip_rewards: float | None
    frame_stack: int
    backend: str
    env_backend: str
    env_kwargs: Mapping[str, Any]
    vectorization: Literal["sync", "async"]
    compute_dtype: Literal["float32", "bfloat16"]
    device: str
    torch_threads: int | None
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

class APPOOptions(TypedDict, total=False):
    """Options of :class:`APPOConfig`."""

    preset: str
    unrolls_per_update: int | None
    actor_backend: str
    order: Literal["auto", "fixed", "arrival"]
    queue_size: int
    max_lag: int | None
    min_workers: int | None
    worker_timeout: float
    max_restarts: int
    gamma: float
    rho_bar: float
    c_bar: float
    pg_rho_bar: float
    max_grad_norm: float
    hidden: int
    network: Literal["auto", "mlp", "cnn"]
    recurrent: Literal["none", "lstm", "gru"]
    memory_size: int
    normalize_observations: bool
    clip_rewards: float | None
    frame_stack: int
    backend: str
    env_backend: str
    env_kwargs: Mapping[str, Any]
    vectorization: Literal["sync", "async"]
    device: str
    torch_threads: int | None
    advantages: Literal["vtrace", "gae"]
    gae_lambda: float
    target_update_interval: int
    ratio_bound: float
    n_epochs: int
    batch_size: int
    learning_rate: ScheduleOption
    adam_eps: float
    clip_eps: ScheduleOption
    vf_coef: float
    ent_coef: ScheduleOption
    normalize_advantages: bool
    target_kl: float | None
    ray_address: str | None
    ray_cpus: float
    episodic_life: bool
    emulator_threads: int | None
    pool_threads: int | None
    step_timeout: float
    reset_timeout: float
    worker_restarts: int
    token_file: str | None
    tls_ca: str | None
    tls_cert: str | None
    tls_key: str | None
    physics_threads: int | None
    ray_step_timeout: float
    ray_restarts: int

class HybridPPOOptions(TypedDict, total=False):
    """Options of :class:`HybridPPOConfig`."""

    preset: str
    n_steps: int
    n_epochs: int
    batch_size: int
    learning_rate: ScheduleOption
    adam_eps: float
    gamma: float
    gae_lambda: float
    clip_eps: ScheduleOption
    vf_coef: float
    ent_coef: ScheduleOption
    max_grad_norm: float
    normalize_advantages: bool
    vf_clip_eps: float | None
    dual_clip: float | None
    target_kl: float | None
    network: Literal["auto", "mlp"]
    recurrent: Literal["none"]
    memory_size: int
    normalize_observations: bool
    normalize_rewards: bool
    clip_rewards: float | None
    frame_stack: int
    backend: str
    env_backend: Literal["native"]
    env_kwargs: Mapping[str, Any]
    vectorization: Literal["sync"]
    compute_dtype: Literal["float32"]
    device: str
    torch_threads: int | None
    seq_len: int | None
    overlap: bool

class IMPALAOptions(TypedDict, total=False):
    """Options of :class:`IMPALAConfig`."""

    preset: str
    unrolls_per_update: int | None
    actor_backend: str
    order: Literal["auto", "fixed", "arrival"]
    queue_size: int
    max_lag: int | None
    min_workers: int | None
    worker_timeout: float
    max_restarts: int
    gamma: float
    rho_bar: float
    c_bar: float
    pg_rho_bar: float
    max_grad_norm: float
    hidden: int
    network: Literal["auto", "mlp", "cnn"]
    recurrent: Literal["none", "lstm", "gru"]
    memory_size: int
    normalize_observations: bool
    clip_rewards: float | None
    frame_stack: int
    backend: str
    env_backend: str
    env_kwargs: Mapping[str, Any]
    vectorization: Literal["sync", "async"]
    device: str
    torch_threads: int | None
    learning_rate: ScheduleOption
    rmsprop_alpha: float
    rmsprop_eps: float
    vf_coef: float
    ent_coef: ScheduleOption
    loss_reduction: Literal["mean", "sum"]
    ray_address: str | None
    ray_cpus: float
    episodic_life: bool
    emulator_threads: int | None
    pool_threads: int | None
    step_timeout: float
    reset_timeout: float
    worker_restarts: int
    token_file: str | None
    tls_ca: str | None
    tls_cert: str | None
    tls_key: str | None
    physics_threads: int | None
    ray_step_timeout: float
    ray_restarts: int

class PPOOptions(TypedDict, total=False):
    """Options of :class:`PPOConfig`."""

    preset: str
    n_steps: int
    n_epochs: int
    batch_size: int
    learning_rate: ScheduleOption
    adam_eps: float
    gamma: float
    gae_lambda: float
    clip_eps: ScheduleOption
    vf_coef: float
    ent_coef: ScheduleOption
    max_grad_norm: float
    normalize_advantages: bool
    vf_clip_eps: float | None
    dual_clip: float | None
    target_kl: float | None
    hidden: int
    network: Literal["auto", "mlp", "cnn"]
    recurrent: Literal["none", "lstm", "gru"]
    memory_size: int
    normalize_observations: bool
    normalize_rewards: bool
    clip_rewards: float | None
    frame_stack: int
    backend: str
    env_backend: str
    env_kwargs: Mapping[str, Any]
    vectorization: Literal["sync", "async"]
    compute_dtype: Literal["float32", "bfloat16"]
    device: str
    torch_threads: int | None
    seq_len: int | None
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
