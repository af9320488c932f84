"""Types of the algorithms' options, for editors and type checkers.

Written by ``python rlox-core/option_types.py`` from the configs, which say what each option is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from rlox.config.schedules import ScheduleOption
from typing_extensions import Unpack

__all__ = [
    "IPPOOptions",
    "IndependentQOptions",
    "MAPPOOptions",
    "QMIXOptions",
    "Unpack",
    "VDNOptions",
]

class IndependentQOptions(TypedDict, total=False):
    """Options of :class:`IndependentQConfig`."""

    preset: str
    buffer_size: int
    learning_starts: int
    train_freq: int
    gradient_steps: int
    batch_size: int
    sequence_length: int | None
    learning_rate: ScheduleOption
    adam_eps: float
    max_grad_norm: float
    gamma: float
    epsilon: ScheduleOption
    double_q: bool
    target_update_interval: int
    tau: float
    share_parameters: str
    hidden: int
    network: Literal["auto", "mlp", "cnn"]
    recurrent: Literal["none", "gru"]
    memory_size: int
    steps_per_iteration: int
    save_replay_buffer: bool
    env_backend: str
    env_kwargs: Mapping[str, Any]
    device: str
    torch_threads: int | None
    team_reward: Literal["own", "mean", "sum"]
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

class IPPOOptions(TypedDict, total=False):
    """Options of :class:`IPPOConfig`."""

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
    critic: Literal["local"]
    share_parameters: str
    team_reward: Literal["own", "mean", "sum"]
    normalize_values: Literal["none", "value_norm", "popart"]
    huber_delta: float | None
    critic_learning_rate: ScheduleOption | None
    opponents: Literal["none", "even", "rating"]
    pool_size: int
    pool_interval: int
    pool_share: float
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

class MAPPOOptions(TypedDict, total=False):
    """Options of :class:`MAPPOConfig`."""

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
    critic: Literal["auto", "state", "observations", "agent_state", "local"]
    share_parameters: str
    team_reward: Literal["own", "mean", "sum"]
    normalize_values: Literal["none", "value_norm", "popart"]
    huber_delta: float | None
    critic_learning_rate: ScheduleOption | None
    opponents: Literal["none", "even", "rating"]
    pool_size: int
    pool_interval: int
    pool_share: float
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

class QMIXOptions(TypedDict, total=False):
    """Options of :class:`QMIXConfig`."""

    preset: str
    buffer_size: int
    learning_starts: int
    train_freq: int
    gradient_steps: int
    batch_size: int
    sequence_length: int | None
    learning_rate: ScheduleOption
    adam_eps: float
    max_grad_norm: float
    gamma: float
    epsilon: ScheduleOption
    double_q: bool
    target_update_interval: int
    tau: float
    share_parameters: str
    hidden: int
    network: Literal["auto", "mlp", "cnn"]
    recurrent: Literal["none", "gru"]
    memory_size: int
    steps_per_iteration: int
    save_replay_buffer: bool
    env_backend: str
    env_kwargs: Mapping[str, Any]
    device: str
    torch_threads: int | None
    team_reward: Literal["mean", "sum"]
    mixing_size: int
    hyper_size: int
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

class VDNOptions(TypedDict, total=False):
    """Options of :class:`VDNConfig`."""

    preset: str
    buffer_size: int
    learning_starts: int
    train_freq: int
    gradient_steps: int
    batch_size: int
    sequence_length: int | None
    learning_rate: ScheduleOption
    adam_eps: float
    max_grad_norm: float
    gamma: float
    epsilon: ScheduleOption
    double_q: bool
    target_update_interval: int
    tau: float
    share_parameters: str
    hidden: int
    network: Literal["auto", "mlp", "cnn"]
    recurrent: Literal["none", "gru"]
    memory_size: int
    steps_per_iteration: int
    save_replay_buffer: bool
    env_backend: str
    env_kwargs: Mapping[str, Any]
    device: str
    torch_threads: int | None
    team_reward: Literal["mean", "sum"]
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
