"""NumPy reference kernels and buffers: slow, obvious, and the specification of the Rust ones."""

from rlox.reference.gae import (
    compute_gae,
    compute_gae_batched,
    compute_gae_batched_f32,
    compute_gae_time_major,
)
from rlox.reference.offline import OfflineDatasetBuffer
from rlox.reference.prioritized_replay import PrioritizedReplayBuffer
from rlox.reference.replay import ReplayBuffer

__all__ = [
    "OfflineDatasetBuffer",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "compute_gae",
    "compute_gae_batched",
    "compute_gae_batched_f32",
    "compute_gae_time_major",
]
