"""The contracts between the parts of rlox; anything that has the methods fits."""

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
from rlox.protocols.envs import (
    AgentGroup,
    MaskingVecEnv,
    MultiAgentObs,
    MultiAgentStep,
    MultiAgentVecEnv,
    StatefulVecEnv,
    VecEnv,
    VecEnvStep,
)
from rlox.protocols.optimizers import Optimizer

__all__ = [
    "AgentGroup",
    "DeterministicActor",
    "ExplorationStrategy",
    "MaskingVecEnv",
    "MultiAgentObs",
    "MultiAgentStep",
    "MultiAgentVecEnv",
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
