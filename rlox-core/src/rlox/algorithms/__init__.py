"""The algorithms' classes, each resolved from its own distribution on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlox.errors import suggest
from rlox.families import ALGORITHMS
from rlox.files import require_working_directory

if TYPE_CHECKING:
    from rlox.algorithms.a2c import A2C
    from rlox.algorithms.appo import APPO
    from rlox.algorithms.awac import AWAC
    from rlox.algorithms.bc import BC
    from rlox.algorithms.best_of_n import BestOfN
    from rlox.algorithms.cql import CQL
    from rlox.algorithms.crossq import CrossQ
    from rlox.algorithms.ddpg import DDPG
    from rlox.algorithms.discrete_sac import DiscreteSAC
    from rlox.algorithms.dpo import DPO
    from rlox.algorithms.dqn import DQN
    from rlox.algorithms.dreamer import DreamerV3
    from rlox.algorithms.fqe import FQE
    from rlox.algorithms.grpo import GRPO
    from rlox.algorithms.hybrid_ppo import HybridPPO
    from rlox.algorithms.impala import IMPALA
    from rlox.algorithms.independent_q import IndependentQ
    from rlox.algorithms.ippo import IPPO
    from rlox.algorithms.iql import IQL
    from rlox.algorithms.mappo import MAPPO
    from rlox.algorithms.online_dpo import OnlineDPO
    from rlox.algorithms.ppo import PPO
    from rlox.algorithms.qmix import QMIX
    from rlox.algorithms.rl8_ppo import RL8PPO
    from rlox.algorithms.rl8_recurrent_ppo import RL8RecurrentPPO
    from rlox.algorithms.sac import SAC
    from rlox.algorithms.sft import SFT
    from rlox.algorithms.td3 import TD3
    from rlox.algorithms.td3_bc import TD3BC
    from rlox.algorithms.vdn import VDN

__all__ = [
    "A2C",
    "APPO",
    "AWAC",
    "BC",
    "CQL",
    "DDPG",
    "DPO",
    "DQN",
    "FQE",
    "GRPO",
    "IMPALA",
    "IPPO",
    "IQL",
    "MAPPO",
    "PPO",
    "QMIX",
    "RL8PPO",
    "SAC",
    "SFT",
    "TD3",
    "TD3BC",
    "VDN",
    "BestOfN",
    "CrossQ",
    "DiscreteSAC",
    "DreamerV3",
    "HybridPPO",
    "IndependentQ",
    "OnlineDPO",
    "RL8RecurrentPPO",
]

require_working_directory()  # before any of them imports torch, which ends a process without one


def __getattr__(name: str) -> Any:
    for row in ALGORITHMS:
        if row.class_name == name:
            return getattr(importlib.import_module(row.facade), name)
    raise AttributeError(f"module 'rlox.algorithms' has no '{name}'{suggest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
