"""NumPy reference kernels and buffers: the specification of the Rust versions."""

from rlox.kernels.reference.gae import (
    compute_discounted_returns,
    compute_gae,
    compute_gae_batched,
    compute_gae_batched_f32,
    compute_gae_time_major,
    compute_lambda_returns,
    compute_n_step_returns,
    compute_vtrace,
)
from rlox.kernels.reference.groups import (
    compute_batch_group_advantages,
    compute_batch_token_kl,
    compute_batch_token_kl_schulman,
    compute_group_advantages,
    compute_token_kl,
    compute_token_kl_schulman,
    normalize_advantages,
)
from rlox.kernels.reference.packing import PackedSequences, pack_sequences
from rlox.kernels.reference.replay.hindsight import HerReplayBuffer
from rlox.kernels.reference.replay.offline import OfflineDatasetBuffer
from rlox.kernels.reference.replay.prioritized import PrioritizedReplayBuffer
from rlox.kernels.reference.replay.ring import ReplayBuffer
from rlox.kernels.reference.replay.streams import SequenceReplayBuffer
from rlox.kernels.reference.running import RunningMeanStd, get_num_threads, set_num_threads

__all__ = [
    "HerReplayBuffer",
    "OfflineDatasetBuffer",
    "PackedSequences",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "RunningMeanStd",
    "SequenceReplayBuffer",
    "compute_batch_group_advantages",
    "compute_batch_token_kl",
    "compute_batch_token_kl_schulman",
    "compute_discounted_returns",
    "compute_gae",
    "compute_gae_batched",
    "compute_gae_batched_f32",
    "compute_gae_time_major",
    "compute_group_advantages",
    "compute_lambda_returns",
    "compute_n_step_returns",
    "compute_token_kl",
    "compute_token_kl_schulman",
    "compute_vtrace",
    "get_num_threads",
    "normalize_advantages",
    "pack_sequences",
    "set_num_threads",
]
