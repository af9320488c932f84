"""Protocols between the parts of rlox (structural typing)."""

from rlox.protocols.actors import (
    DeterministicActor,
    ExplorationStrategy,
    OnPolicyActor,
    RecurrentActor,
    StochasticActor,
)
from rlox.protocols.buffers import (
    PrioritizedBuffer,
    ReplayBuffer,
    ReplayBufferProtocol,
    StatefulBuffer,
)
from rlox.protocols.envs import MaskingVecEnv, StatefulVecEnv, VecEnv, VecEnvStep
from rlox.protocols.optimizers import Optimizer

__all__ = [
    "DeterministicActor",
    "ExplorationStrategy",
    "MaskingVecEnv",
    "OnPolicyActor",
    "Optimizer",
    "PrioritizedBuffer",
    "RecurrentActor",
    "ReplayBuffer",
    "ReplayBufferProtocol",
    "StatefulBuffer",
    "StatefulVecEnv",
    "StochasticActor",
    "VecEnv",
    "VecEnvStep",
]
