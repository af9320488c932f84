"""Protocols between the parts of rlox (structural typing)."""

from rlox.protocols.actors import (
    DeterministicActor,
    DiscreteQFunction,
    ExplorationStrategy,
    OnPolicyActor,
    Optimizer,
    QFunction,
    RecurrentActor,
    StochasticActor,
)
from rlox.protocols.buffers import (
    PrioritizedBuffer,
    ReplayBuffer,
    ReplayBufferProtocol,
    SegmentedBuffer,
    SequenceBuffer,
    StatefulBuffer,
)
from rlox.protocols.envs import (
    AgentGroup,
    MaskingVecEnv,
    MultiAgentObs,
    MultiAgentStep,
    MultiAgentVecEnv,
    StatefulVecEnv,
    TensorEnv,
    VecEnv,
    VecEnvStep,
)

__all__ = [
    "AgentGroup",
    "DeterministicActor",
    "DiscreteQFunction",
    "ExplorationStrategy",
    "MaskingVecEnv",
    "MultiAgentObs",
    "MultiAgentStep",
    "MultiAgentVecEnv",
    "OnPolicyActor",
    "Optimizer",
    "PrioritizedBuffer",
    "QFunction",
    "RecurrentActor",
    "ReplayBuffer",
    "ReplayBufferProtocol",
    "SegmentedBuffer",
    "SequenceBuffer",
    "StatefulBuffer",
    "StatefulVecEnv",
    "StochasticActor",
    "TensorEnv",
    "VecEnv",
    "VecEnvStep",
]
