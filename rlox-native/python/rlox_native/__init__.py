"""The Rust half of rlox: kernels, buffers and environments behind NumPy arrays."""

from rlox_native._native import (
    CartPole,
    OfflineDatasetBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    VecEnv,
    __version__,
    compute_gae,
    compute_gae_batched,
    compute_gae_batched_f32,
    compute_gae_time_major,
    native_env_ids,
)

__all__ = [
    "CartPole",
    "OfflineDatasetBuffer",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "VecEnv",
    "__version__",
    "compute_gae",
    "compute_gae_batched",
    "compute_gae_batched_f32",
    "compute_gae_time_major",
    "native_env_ids",
]
