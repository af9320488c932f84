"""The algorithms' classes, each resolved from its own distribution on first use."""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rlox.errors import missing_extra, suggest
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


class _Modules(MetaPathFinder, Loader):
    """Makes the documented module of an algorithm, such as ``rlox.algorithms.ppo``, from its row.

    Raises:
        MissingDependencyError: on import, its family is not installed.
    """

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        """Return a spec for the modules of the table."""
        known = any(row.facade == fullname for row in ALGORITHMS)
        return ModuleSpec(fullname, self) if known else None

    def exec_module(self, module: ModuleType) -> None:
        """Put the class into the module."""
        (row,) = (row for row in ALGORITHMS if row.facade == module.__name__)
        try:
            cls = getattr(importlib.import_module(row.module), row.class_name)
        except ModuleNotFoundError as error:
            raise missing_extra(f"rlox.algorithms.{row.class_name}", row.extra) from error
        setattr(module, row.class_name, cls)
        module.__doc__ = f"{row.class_name}, from ``rlox-{row.extra}``."
        setattr(module, "__all__", [row.class_name])  # noqa: B010


sys.meta_path.append(_Modules())


def __getattr__(name: str) -> Any:
    for row in ALGORITHMS:
        if row.class_name == name:
            return getattr(importlib.import_module(row.facade), name)
    raise AttributeError(f"module 'rlox.algorithms' has no '{name}'{suggest(name, __all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
