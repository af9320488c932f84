"""NumPy reference kernels and buffers, the specification of the Rust ones."""

from rlox.reference.gae import (
    compute_discounted_returns,
    compute_gae,
    compute_gae_batched,
    compute_gae_batched_f32,
    compute_gae_time_major,
    compute_lambda_returns,
    compute_n_step_returns,
    compute_vtrace,
)
from rlox.reference.groups import (
    compute_batch_group_advantages,
    compute_batch_token_kl,
    compute_batch_token_kl_schulman,
    compute_group_advantages,
    compute_token_kl,
    compute_token_kl_schulman,
    normalize_advantages,
)
from rlox.reference.packing import PackedSequences, pack_sequences
from rlox.reference.replay.hindsight import HerReplayBuffer
from rlox.reference.replay.offline import OfflineDatasetBuffer
from rlox.reference.replay.prioritized import PrioritizedReplayBuffer
from rlox.reference.replay.ring import ReplayBuffer
from rlox.reference.replay.streams import SequenceReplayBuffer
from rlox.reference.running import RunningMeanStd, get_num_threads, set_num_threads

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
