"""Types of the algorithms' options, for editors and type checkers.

Written by ``python rlox-core/option_types.py`` from the configs, which say what each option is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from rlox.config.schedules import ScheduleOption
from typing_extensions import Unpack

__all__ = [
    "CrossQOptions",
    "DDPGOptions",
    "DQNOptions",
    "DiscreteSACOptions",
    "SACOptions",
    "TD3Options",
    "Unpack",
]

class CrossQOptions(TypedDict, total=False):
    """Options of :class:`CrossQConfig`."""

    preset: str
    buffer_size: int
    priority_beta: ScheduleOption
    learning_starts: int
    train_freq: int
    gradient_steps: int
    batch_size: int
    adam_eps: float
    gamma: float
    n_step: int
    clip_rewards: float | None
    hidden: int
    steps_per_iteration: int
    save_replay_buffer: bool
    backend: str
    env_backend: str
    env_kwargs: Mapping[str, Any]
    vectorization: Literal["sync", "async"]
    device: str
    torch_threads: int | None
    learning_rate: ScheduleOption
    adam_beta1: float
    policy_delay: int
    critic_hidden: int
    renorm_momentum: float
    renorm_warm_up: int
    alpha: float
    auto_entropy: bool
    target_entropy: float | None
    n_sampled_goal: int
    goal_selection_strategy: Literal["future", "final", "episode"]
    hot_capacity: int
    buffer_folder: str | None
    priority_alpha: float
    ray_address: str | None
    ray_cpus: float
    draw_ahead: bool
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
    ray_step_timeout: float
    ray_restarts: int

class DDPGOptions(TypedDict, total=False):
    """Options of :class:`DDPGConfig`."""

    preset: str
    buffer_size: int
    priority_beta: ScheduleOption
    learning_starts: int
    train_freq: int
    gradient_steps: int
    batch_size: int
    adam_eps: float
    gamma: float
    n_step: int
    clip_rewards: float | None
    hidden: int
    steps_per_iteration: int
    save_replay_buffer: bool
    backend: str
    env_backend: str
    env_kwargs: Mapping[str, Any]
    vectorization: Literal["sync", "async"]
    device: str
    torch_threads: int | None
    learning_rate: ScheduleOption
    tau: float
    noise_std: float
    n_sampled_goal: int
    goal_selection_strategy: Literal["future", "final", "episode"]
    hot_capacity: int
    buffer_folder: str | None
    priority_alpha: float
    ray_address: str | None
    ray_cpus: float
    draw_ahead: bool
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
    ray_step_timeout: float
    ray_restarts: int

class DiscreteSACOptions(TypedDict, total=False):
    """Options of :class:`DiscreteSACConfig`."""

    preset: str
    buffer_size: int
    priority_beta: ScheduleOption
    learning_starts: int
    train_freq: int
    gradient_steps: int
    batch_size: int
    adam_eps: float
    gamma: float
    n_step: int
    clip_rewards: float | None
    hidden: int
    steps_per_iteration: int
    save_replay_buffer: bool
    backend: str
    env_backend: str
    env_kwargs: Mapping[str, Any]
    vectorization: Literal["sync", "async"]
    device: str
    torch_threads: int | None
    learning_rate: ScheduleOption
    tau: float
    alpha: float
    auto_entropy: bool
    target_entropy: float | None
    n_sampled_goal: int
    goal_selection_strategy: Literal["future", "final", "episode"]
    hot_capacity: int
    buffer_folder: str | None
    priority_alpha: float
    ray_address: str | None
    ray_cpus: float
    draw_ahead: bool
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
    ray_step_timeout: float
    ray_restarts: int

class DQNOptions(TypedDict, total=False):
    """Options of :class:`DQNConfig`."""

    preset: str
    buffer_size: int
    priority_beta: ScheduleOption
    learning_starts: int
    train_freq: int
    gradient_steps: int
    batch_size: int
    adam_eps: float
    gamma: float
    n_step: int
    clip_rewards: float | None
    hidden: int
    steps_per_iteration: int
    save_replay_buffer: bool
    backend: str
    env_backend: str
    env_kwargs: Mapping[str, Any]
    vectorization: Literal["sync", "async"]
    device: str
    torch_threads: int | None
    learning_rate: ScheduleOption
    max_grad_norm: float | None
    target_update_interval: int
    tau: float
    epsilon: ScheduleOption | None
    loss: Literal["huber", "mse"]
    double_dqn: bool
    dueling: bool
    compute_dtype: Literal["float32", "bfloat16"]
    noisy: bool
    noisy_std: float
    distributional: Literal["none", "c51", "qr-dqn"]
    n_atoms: int
    v_min: float | None
    v_max: float | None
    n_quantiles: int
    n_sampled_goal: int
    goal_selection_strategy: Literal["future", "final", "episode"]
    hot_capacity: int
    buffer_folder: str | None
    priority_alpha: float
    ray_address: str | None
    ray_cpus: float
    draw_ahead: bool
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
    ray_step_timeout: float
    ray_restarts: int

class SACOptions(TypedDict, total=False):
    """Options of :class:`SACConfig`."""

    preset: str
    buffer_size: int
    priority_beta: ScheduleOption
    learning_starts: int
    train_freq: int
    gradient_steps: int
    batch_size: int
    adam_eps: float
    gamma: float
    n_step: int
    clip_rewards: float | None
    hidden: int
    steps_per_iteration: int
    save_replay_buffer: bool
    backend: str
    env_backend: str
    env_kwargs: Mapping[str, Any]
    vectorization: Literal["sync", "async"]
    device: str
    torch_threads: int | None
    learning_rate: ScheduleOption
    tau: float
    alpha: float
    auto_entropy: bool
    target_entropy: float | None
    noise_std: float
    n_sampled_goal: int
    goal_selection_strategy: Literal["future", "final", "episode"]
    hot_capacity: int
    buffer_folder: str | None
    priority_alpha: float
    ray_address: str | None
    ray_cpus: float
    draw_ahead: bool
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
    ray_step_timeout: float
    ray_restarts: int

class TD3Options(TypedDict, total=False):
    """Options of :class:`TD3Config`."""

    preset: str
    buffer_size: int
    priority_beta: ScheduleOption
    learning_starts: int
    train_freq: int
    gradient_steps: int
    batch_size: int
    adam_eps: float
    gamma: float
    n_step: int
    clip_rewards: float | None
    hidden: int
    steps_per_iteration: int
    save_replay_buffer: bool
    backend: str
    env_backend: str
    env_kwargs: Mapping[str, Any]
    vectorization: Literal["sync", "async"]
    device: str
    torch_threads: int | None
    learning_rate: ScheduleOption
    tau: float
    policy_delay: int
    target_noise: float
    noise_clip: float
    noise_std: float
    n_sampled_goal: int
    goal_selection_strategy: Literal["future", "final", "episode"]
    hot_capacity: int
    buffer_folder: str | None
    priority_alpha: float
    ray_address: str | None
    ray_cpus: float
    draw_ahead: bool
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
    ray_step_timeout: float
    ray_restarts: int
