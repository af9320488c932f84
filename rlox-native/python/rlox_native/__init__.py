"""The Rust half of rlox: kernels, buffers and environments behind NumPy arrays."""

from rlox_native._native import (
    ActorCriticLearner,
    CartPole,
    ContinuousLearner,
    HerReplayBuffer,
    ImplicitLearner,
    MmapReplayBuffer,
    MultiAgentVecEnv,
    OfflineDatasetBuffer,
    PackedSequences,
    PrioritizedReplayBuffer,
    QLearner,
    ReplayBuffer,
    RunningMeanStd,
    VecEnv,
    __version__,
    compute_batch_group_advantages,
    compute_batch_token_kl,
    compute_batch_token_kl_schulman,
    compute_discounted_returns,
    compute_gae,
    compute_gae_batched,
    compute_gae_batched_f32,
    compute_gae_time_major,
    compute_group_advantages,
    compute_lambda_returns,
    compute_n_step_returns,
    compute_token_kl,
    compute_token_kl_schulman,
    compute_vtrace,
    native_env_ids,
    native_team_env_ids,
    normalize_advantages,
    pack_sequences,
)
from rlox_native.copying import refuse_copies

__all__ = [
    "ActorCriticLearner",
    "CartPole",
    "ContinuousLearner",
    "HerReplayBuffer",
    "ImplicitLearner",
    "MmapReplayBuffer",
    "MultiAgentVecEnv",
    "OfflineDatasetBuffer",
    "PackedSequences",
    "PrioritizedReplayBuffer",
    "QLearner",
    "ReplayBuffer",
    "RunningMeanStd",
    "VecEnv",
    "__version__",
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
    "native_env_ids",
    "native_team_env_ids",
    "normalize_advantages",
    "pack_sequences",
]

refuse_copies(
    HerReplayBuffer,
    MultiAgentVecEnv,
    OfflineDatasetBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    RunningMeanStd,
    VecEnv,
    instead="give its state() to the set_state() of another one that was made with the same "
    "arguments",
)
refuse_copies(
    ActorCriticLearner,
    ContinuousLearner,
    ImplicitLearner,
    QLearner,
    instead="make another one with the same arguments: the parameters are arrays of yours, which "
    "can be copied",
)
refuse_copies(
    CartPole,
    instead="make another one, or a VecEnv of one env, whose state() a second one can be given",
)
refuse_copies(PackedSequences, instead="copy its arrays, such as packed and masks")
refuse_copies(
    MmapReplayBuffer,
    instead="close one made with keep=True and copy its file, over which another one can be made",
)
