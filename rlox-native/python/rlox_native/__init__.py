"""The Rust half of rlox: kernels, buffers and environments behind NumPy arrays."""

from rlox_native import _native
from rlox_native._native import *  # noqa: F403
from rlox_native.copying import refuse_copies
from rlox_native.environment import num_threads

__all__ = _native.__all__

_native.set_num_threads(num_threads())

refuse_copies(
    _native.HerReplayBuffer,
    _native.MultiAgentVecEnv,
    _native.OfflineDatasetBuffer,
    _native.PrioritizedReplayBuffer,
    _native.ReplayBuffer,
    _native.RunningMeanStd,
    _native.SequenceReplayBuffer,
    _native.VecEnv,
    instead="give its state() to the set_state() of another one that was made with the same "
    "arguments",
)
refuse_copies(
    _native.ActorCriticLearner,
    _native.ContinuousLearner,
    _native.ImplicitLearner,
    _native.QLearner,
    instead="make another one with the same arguments: the parameters are arrays of yours, which "
    "can be copied",
)
refuse_copies(
    _native.CartPole,
    instead="make another one, or a VecEnv of one env, whose state() a second one can be given",
)
refuse_copies(_native.PackedSequences, instead="copy its arrays, such as packed and masks")
refuse_copies(
    _native.MmapReplayBuffer,
    instead="close one made with keep=True and copy its file, over which another one can be made",
)
