"""Types of the algorithms' options, for editors and type checkers.

Written by ``python rlox-core/option_types.py`` from the configs, which say what each option is.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from typing_extensions import Unpack

__all__ = ["DreamerV3Options", "Unpack"]

class DreamerV3Options(TypedDict, total=False):
    """Options of :class:`DreamerV3Config`."""

    preset: str
    size: Literal["debug", "1m", "12m", "25m", "50m", "100m", "200m", "400m"]
    deter_dim: int
    stoch_dim: int
    stoch_classes: int
    hidden: int
    units: int
    depth: int
    blocks: int
    encoder_layers: int
    head_layers: int
    bins: int
    encoder_keys: Sequence[str] | None
    decoder_keys: Sequence[str] | None
    unimix: float
    policy_unimix: float
    normalize_observations: bool
    imagination_horizon: int
    buffer: str
    buffer_size: int
    batch_size: int
    seq_len: int
    train_ratio: float
    learning_starts: int
    learning_rate: float
    warmup: int
    agc: float
    gamma: float
    return_lambda: float
    entropy: float
    kl_balance: float
    dyn_scale: float | None
    rep_scale: float | None
    free_nats: float
    slow_rate: float
    slow_target: bool
    replay_value_scale: float
    replay_context: bool
    online_queue: bool
    steps_per_iteration: int
    save_replay_buffer: bool
    compute_dtype: Literal["float32", "bfloat16"]
    backend: str
    env_backend: str
    env_kwargs: Mapping[str, Any]
    vectorization: Literal["sync", "async"]
    device: str
    torch_threads: int | None
    latent_dim: int | None
    obs_dim: int | None
    n_actions: int | None
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
