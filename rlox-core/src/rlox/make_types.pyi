"""Types of ``rlox.make``: an overload for each algorithm, and one for plugins.

Written by ``python rlox-core/option_types.py``. A plugin's options, and those of algorithms whose
name is no literal, go as ``config={...}``: among arguments that every name may bring, no type
checker could report a misspelt one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, overload

from rlox_dreamer.configs import DreamerV3Config
from rlox_dreamer.option_types import DreamerV3Options
from rlox_llm.building import ModuleOrFolder
from rlox_llm.configs import DPOConfig, GRPOConfig, OnlineDPOConfig, SFTConfig
from rlox_llm.generation import Generator
from rlox_llm.online_dpo import PreferenceFn
from rlox_llm.option_types import DPOOptions, GRPOOptions, OnlineDPOOptions, SFTOptions
from rlox_llm.rewards import RewardFn
from rlox_marl.configs import IPPOConfig, MAPPOConfig
from rlox_marl.option_types import (
    IndependentQOptions,
    IPPOOptions,
    MAPPOOptions,
    QMIXOptions,
    VDNOptions,
)
from rlox_marl.value_configs import IndependentQConfig, QMIXConfig, VDNConfig
from rlox_offline.configs import AWACConfig, BCConfig, CQLConfig, FQEConfig, IQLConfig, TD3BCConfig
from rlox_offline.option_types import (
    AWACOptions,
    BCOptions,
    CQLOptions,
    FQEOptions,
    IQLOptions,
    TD3BCOptions,
)
from rlox_offpolicy.configs import DDPGConfig, DiscreteSACConfig, DQNConfig, SACConfig, TD3Config
from rlox_offpolicy.crossq_config import CrossQConfig
from rlox_offpolicy.option_types import (
    CrossQOptions,
    DDPGOptions,
    DiscreteSACOptions,
    DQNOptions,
    SACOptions,
    TD3Options,
)
from rlox_onpolicy.appo_config import APPOConfig
from rlox_onpolicy.configs import A2CConfig, HybridPPOConfig, PPOConfig
from rlox_onpolicy.impala_config import IMPALAConfig
from rlox_onpolicy.option_types import (
    A2COptions,
    APPOOptions,
    HybridPPOOptions,
    IMPALAOptions,
    PPOOptions,
)
from rlox_rl8.algorithms import Algorithm as RL8Algorithm
from rlox_rl8.algorithms import RecurrentAlgorithm
from rlox_rl8.configs import RL8PPOConfig, RL8RecurrentPPOConfig
from rlox_rl8.option_types import RL8PPOOptions, RL8RecurrentPPOOptions
from torch import nn
from typing_extensions import Unpack

from rlox.algorithm import Algorithm
from rlox.algorithms.a2c import A2C
from rlox.algorithms.appo import APPO
from rlox.algorithms.awac import AWAC
from rlox.algorithms.bc import BC
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
from rlox.callbacks import Callback
from rlox.config.model import Config
from rlox.config.schedules import ScheduleOption
from rlox.evaluation import Predictor
from rlox.learners.tasks import Objective
from rlox.learners.terms import Losses
from rlox.logging import LoggerCallback
from rlox.offline.dataset import OfflineDataset
from rlox.rollouts.actor_critic import PolicyMaker

__all__ = ["make"]

_ConfigFile: TypeAlias = Mapping[str, Any] | str | Path
_Callbacks: TypeAlias = Iterable[Callback | str] | Callback | str
_Logger: TypeAlias = LoggerCallback | str | Iterable[LoggerCallback | str]

@overload
def make(
    name: Literal["a2c"],
    env: Any = None,
    *,
    config: A2CConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_envs: int = ...,
    seed: int | None = ...,
    policy: nn.Module | PolicyMaker | None = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    objective: Objective | None = ...,
    added_losses: Losses | None = ...,
    **options: Unpack[A2COptions],
) -> A2C: ...
@overload
def make(
    name: Literal["appo"],
    env: Any = None,
    *,
    config: APPOConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_actors: int = ...,
    n_envs: int = ...,
    seed: int | None = ...,
    n_steps: int = ...,
    policy: nn.Module | PolicyMaker | None = ...,
    worker_addresses: Sequence[str] | str | None = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    objective: Objective | None = ...,
    added_losses: Losses | None = ...,
    **options: Unpack[APPOOptions],
) -> APPO: ...
@overload
def make(
    name: Literal["awac"],
    env: Any = None,
    *,
    config: AWACConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    dataset: OfflineDataset | str | Path | None,
    obs_dim: int | None = ...,
    act_dim: int | None = ...,
    **options: Unpack[AWACOptions],
) -> AWAC: ...
@overload
def make(
    name: Literal["bc"],
    env: Any = None,
    *,
    config: BCConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    dataset: OfflineDataset | str | Path | None,
    obs_dim: int | None = ...,
    act_dim: int | None = ...,
    **options: Unpack[BCOptions],
) -> BC: ...
@overload
def make(
    name: Literal["cql"],
    env: Any = None,
    *,
    config: CQLConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    dataset: OfflineDataset | str | Path | None,
    obs_dim: int | None = ...,
    act_dim: int | None = ...,
    **options: Unpack[CQLOptions],
) -> CQL: ...
@overload
def make(
    name: Literal["crossq"],
    env: Any = None,
    *,
    config: CrossQConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_envs: int = ...,
    seed: int | None = ...,
    policy: nn.Module | None = ...,
    critic: nn.Module | None = ...,
    buffer: Any = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    added_losses: Losses | None = ...,
    **options: Unpack[CrossQOptions],
) -> CrossQ: ...
@overload
def make(
    name: Literal["ddpg"],
    env: Any = None,
    *,
    config: DDPGConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_envs: int = ...,
    seed: int | None = ...,
    policy: nn.Module | None = ...,
    critic: nn.Module | None = ...,
    buffer: Any = ...,
    exploration: Any = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    added_losses: Losses | None = ...,
    **options: Unpack[DDPGOptions],
) -> DDPG: ...
@overload
def make(
    name: Literal["discrete_sac"],
    env: Any = None,
    *,
    config: DiscreteSACConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_envs: int = ...,
    seed: int | None = ...,
    policy: nn.Module | None = ...,
    critic: nn.Module | None = ...,
    buffer: Any = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    added_losses: Losses | None = ...,
    **options: Unpack[DiscreteSACOptions],
) -> DiscreteSAC: ...
@overload
def make(
    name: Literal["dpo"],
    env: Any = None,
    *,
    config: DPOConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    model: ModuleOrFolder,
    ref_model: ModuleOrFolder | None = ...,
    beta: float = ...,
    learning_rate: ScheduleOption = ...,
    dataset: Any = ...,
    tokenizer: Any = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    **options: Unpack[DPOOptions],
) -> DPO: ...
@overload
def make(
    name: Literal["dqn"],
    env: Any = None,
    *,
    config: DQNConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_envs: int = ...,
    seed: int | None = ...,
    network: nn.Module | None = ...,
    buffer: Any = ...,
    prioritized: bool = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    added_losses: Losses | None = ...,
    **options: Unpack[DQNOptions],
) -> DQN: ...
@overload
def make(
    name: Literal["dreamer_v3"],
    env: Any = None,
    *,
    config: DreamerV3Config | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_envs: int = ...,
    seed: int | None = ...,
    **options: Unpack[DreamerV3Options],
) -> DreamerV3: ...
@overload
def make(
    name: Literal["fqe"],
    env: Any = None,
    *,
    config: FQEConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    dataset: OfflineDataset | str | Path | None,
    policy: Predictor | str | Path | None,
    obs_dim: int | None = ...,
    act_dim: int | None = ...,
    **options: Unpack[FQEOptions],
) -> FQE: ...
@overload
def make(
    name: Literal["grpo"],
    env: Any = None,
    *,
    config: GRPOConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    model: ModuleOrFolder,
    ref_model: ModuleOrFolder | None = ...,
    reward_fn: RewardFn | Sequence[RewardFn] | None,
    group_size: int = ...,
    learning_rate: ScheduleOption = ...,
    kl_coef: float = ...,
    max_new_tokens: int = ...,
    dataset: Any = ...,
    tokenizer: Any = ...,
    generator: Generator | None = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    **options: Unpack[GRPOOptions],
) -> GRPO: ...
@overload
def make(
    name: Literal["hybrid_ppo"],
    env: Any = None,
    *,
    config: HybridPPOConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_envs: int = ...,
    seed: int | None = ...,
    hidden: int = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    objective: Objective | None = ...,
    added_losses: Losses | None = ...,
    **options: Unpack[HybridPPOOptions],
) -> HybridPPO: ...
@overload
def make(
    name: Literal["impala"],
    env: Any = None,
    *,
    config: IMPALAConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_actors: int = ...,
    n_envs: int = ...,
    seed: int | None = ...,
    n_steps: int = ...,
    policy: nn.Module | PolicyMaker | None = ...,
    worker_addresses: Sequence[str] | str | None = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    objective: Objective | None = ...,
    added_losses: Losses | None = ...,
    **options: Unpack[IMPALAOptions],
) -> IMPALA: ...
@overload
def make(
    name: Literal["independent_q"],
    env: Any = None,
    *,
    config: IndependentQConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_agents: int | None = ...,
    n_envs: int = ...,
    seed: int | None = ...,
    env_fn: Callable[[], Any] | None = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    **options: Unpack[IndependentQOptions],
) -> IndependentQ: ...
@overload
def make(
    name: Literal["ippo"],
    env: Any = None,
    *,
    config: IPPOConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_agents: int | None = ...,
    n_envs: int = ...,
    seed: int | None = ...,
    env_fn: Callable[[], Any] | None = ...,
    policy: Any = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    objective: Objective | None = ...,
    added_losses: Losses | None = ...,
    **options: Unpack[IPPOOptions],
) -> IPPO: ...
@overload
def make(
    name: Literal["iql"],
    env: Any = None,
    *,
    config: IQLConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    dataset: OfflineDataset | str | Path | None,
    obs_dim: int | None = ...,
    act_dim: int | None = ...,
    **options: Unpack[IQLOptions],
) -> IQL: ...
@overload
def make(
    name: Literal["mappo"],
    env: Any = None,
    *,
    config: MAPPOConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_agents: int | None = ...,
    n_envs: int = ...,
    seed: int | None = ...,
    env_fn: Callable[[], Any] | None = ...,
    policy: Any = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    objective: Objective | None = ...,
    added_losses: Losses | None = ...,
    **options: Unpack[MAPPOOptions],
) -> MAPPO: ...
@overload
def make(
    name: Literal["online_dpo"],
    env: Any = None,
    *,
    config: OnlineDPOConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    model: ModuleOrFolder,
    ref_model: ModuleOrFolder | None = ...,
    preference_fn: PreferenceFn | None,
    beta: float = ...,
    learning_rate: ScheduleOption = ...,
    max_new_tokens: int = ...,
    dataset: Any = ...,
    tokenizer: Any = ...,
    generator: Generator | None = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    **options: Unpack[OnlineDPOOptions],
) -> OnlineDPO: ...
@overload
def make(
    name: Literal["ppo"],
    env: Any = None,
    *,
    config: PPOConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_envs: int = ...,
    seed: int | None = ...,
    policy: nn.Module | PolicyMaker | None = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    objective: Objective | None = ...,
    added_losses: Losses | None = ...,
    **options: Unpack[PPOOptions],
) -> PPO: ...
@overload
def make(
    name: Literal["qmix"],
    env: Any = None,
    *,
    config: QMIXConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_agents: int | None = ...,
    n_envs: int = ...,
    seed: int | None = ...,
    env_fn: Callable[[], Any] | None = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    **options: Unpack[QMIXOptions],
) -> QMIX: ...
@overload
def make(
    name: Literal["rl8_ppo"],
    env: Any = None,
    *,
    config: RL8PPOConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    agent: RL8Algorithm | None = ...,
    parts: Mapping[str, Any] | None = ...,
    **options: Unpack[RL8PPOOptions],
) -> RL8PPO: ...
@overload
def make(
    name: Literal["rl8_recurrent_ppo"],
    env: Any = None,
    *,
    config: RL8RecurrentPPOConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    agent: RecurrentAlgorithm | None = ...,
    parts: Mapping[str, Any] | None = ...,
    **options: Unpack[RL8RecurrentPPOOptions],
) -> RL8RecurrentPPO: ...
@overload
def make(
    name: Literal["sac"],
    env: Any = None,
    *,
    config: SACConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_envs: int = ...,
    seed: int | None = ...,
    policy: nn.Module | None = ...,
    critic: nn.Module | None = ...,
    buffer: Any = ...,
    exploration: Any = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    added_losses: Losses | None = ...,
    **options: Unpack[SACOptions],
) -> SAC: ...
@overload
def make(
    name: Literal["sft"],
    env: Any = None,
    *,
    config: SFTConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    model: ModuleOrFolder,
    learning_rate: ScheduleOption = ...,
    dataset: Any = ...,
    tokenizer: Any = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    **options: Unpack[SFTOptions],
) -> SFT: ...
@overload
def make(
    name: Literal["td3"],
    env: Any = None,
    *,
    config: TD3Config | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_envs: int = ...,
    seed: int | None = ...,
    policy: nn.Module | None = ...,
    critic: nn.Module | None = ...,
    buffer: Any = ...,
    exploration: Any = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    added_losses: Losses | None = ...,
    **options: Unpack[TD3Options],
) -> TD3: ...
@overload
def make(
    name: Literal["td3_bc"],
    env: Any = None,
    *,
    config: TD3BCConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    dataset: OfflineDataset | str | Path | None,
    obs_dim: int | None = ...,
    act_dim: int | None = ...,
    **options: Unpack[TD3BCOptions],
) -> TD3BC: ...
@overload
def make(
    name: Literal["vdn"],
    env: Any = None,
    *,
    config: VDNConfig | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    n_agents: int | None = ...,
    n_envs: int = ...,
    seed: int | None = ...,
    env_fn: Callable[[], Any] | None = ...,
    schedules: Mapping[str, Callable[[int], float]] | None = ...,
    **options: Unpack[VDNOptions],
) -> VDN: ...
@overload
def make(
    name: str,
    env: Any = None,
    *,
    config: Config | _ConfigFile | None = None,
    callbacks: _Callbacks | None = None,
    logger: _Logger | None = None,
    log_dir: str | Path = "runs",
    preset: str | None = None,
) -> Algorithm: ...
