"""Types of ``rlox.make``: an overload for each algorithm, and one for plugins.

Written by ``python rlox-core/facades.py``; families write their options when they are built. A
plugin's options, and those of algorithms whose name is no literal, go as ``config={...}``: among
arguments that every name may bring, no type checker could report a misspelt one.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, overload

from rlox_dreamer import option_types as dreamer
from rlox_llm import option_types as llm
from rlox_marl import option_types as marl
from rlox_offline import option_types as offline
from rlox_offpolicy import option_types as offpolicy
from rlox_onpolicy import option_types as onpolicy
from rlox_rl8 import option_types as rl8
from typing_extensions import Unpack

from rlox import algorithms
from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.config.model import Config
from rlox.logging import LoggerCallback

@overload
def make(
    name: Literal["a2c"],
    env: Any = None,
    **arguments: Unpack[onpolicy.A2CArguments],
) -> algorithms.A2C: ...
@overload
def make(
    name: Literal["appo"],
    env: Any = None,
    **arguments: Unpack[onpolicy.APPOArguments],
) -> algorithms.APPO: ...
@overload
def make(
    name: Literal["awac"],
    env: Any = None,
    **arguments: Unpack[offline.AWACArguments],
) -> algorithms.AWAC: ...
@overload
def make(
    name: Literal["bc"],
    env: Any = None,
    **arguments: Unpack[offline.BCArguments],
) -> algorithms.BC: ...
@overload
def make(
    name: Literal["cql"],
    env: Any = None,
    **arguments: Unpack[offline.CQLArguments],
) -> algorithms.CQL: ...
@overload
def make(
    name: Literal["crossq"],
    env: Any = None,
    **arguments: Unpack[offpolicy.CrossQArguments],
) -> algorithms.CrossQ: ...
@overload
def make(
    name: Literal["ddpg"],
    env: Any = None,
    **arguments: Unpack[offpolicy.DDPGArguments],
) -> algorithms.DDPG: ...
@overload
def make(
    name: Literal["discrete_sac"],
    env: Any = None,
    **arguments: Unpack[offpolicy.DiscreteSACArguments],
) -> algorithms.DiscreteSAC: ...
@overload
def make(
    name: Literal["dpo"],
    env: Any = None,
    **arguments: Unpack[llm.DPOArguments],
) -> algorithms.DPO: ...
@overload
def make(
    name: Literal["dqn"],
    env: Any = None,
    **arguments: Unpack[offpolicy.DQNArguments],
) -> algorithms.DQN: ...
@overload
def make(
    name: Literal["dreamer_v3"],
    env: Any = None,
    **arguments: Unpack[dreamer.DreamerV3Arguments],
) -> algorithms.DreamerV3: ...
@overload
def make(
    name: Literal["fqe"],
    env: Any = None,
    **arguments: Unpack[offline.FQEArguments],
) -> algorithms.FQE: ...
@overload
def make(
    name: Literal["grpo"],
    env: Any = None,
    **arguments: Unpack[llm.GRPOArguments],
) -> algorithms.GRPO: ...
@overload
def make(
    name: Literal["hybrid_ppo"],
    env: Any = None,
    **arguments: Unpack[onpolicy.HybridPPOArguments],
) -> algorithms.HybridPPO: ...
@overload
def make(
    name: Literal["impala"],
    env: Any = None,
    **arguments: Unpack[onpolicy.IMPALAArguments],
) -> algorithms.IMPALA: ...
@overload
def make(
    name: Literal["independent_q"],
    env: Any = None,
    **arguments: Unpack[marl.IndependentQArguments],
) -> algorithms.IndependentQ: ...
@overload
def make(
    name: Literal["ippo"],
    env: Any = None,
    **arguments: Unpack[marl.IPPOArguments],
) -> algorithms.IPPO: ...
@overload
def make(
    name: Literal["iql"],
    env: Any = None,
    **arguments: Unpack[offline.IQLArguments],
) -> algorithms.IQL: ...
@overload
def make(
    name: Literal["mappo"],
    env: Any = None,
    **arguments: Unpack[marl.MAPPOArguments],
) -> algorithms.MAPPO: ...
@overload
def make(
    name: Literal["online_dpo"],
    env: Any = None,
    **arguments: Unpack[llm.OnlineDPOArguments],
) -> algorithms.OnlineDPO: ...
@overload
def make(
    name: Literal["ppo"],
    env: Any = None,
    **arguments: Unpack[onpolicy.PPOArguments],
) -> algorithms.PPO: ...
@overload
def make(
    name: Literal["qmix"],
    env: Any = None,
    **arguments: Unpack[marl.QMIXArguments],
) -> algorithms.QMIX: ...
@overload
def make(
    name: Literal["rl8_ppo"],
    env: Any = None,
    **arguments: Unpack[rl8.RL8PPOArguments],
) -> algorithms.RL8PPO: ...
@overload
def make(
    name: Literal["rl8_recurrent_ppo"],
    env: Any = None,
    **arguments: Unpack[rl8.RL8RecurrentPPOArguments],
) -> algorithms.RL8RecurrentPPO: ...
@overload
def make(
    name: Literal["sac"],
    env: Any = None,
    **arguments: Unpack[offpolicy.SACArguments],
) -> algorithms.SAC: ...
@overload
def make(
    name: Literal["sft"],
    env: Any = None,
    **arguments: Unpack[llm.SFTArguments],
) -> algorithms.SFT: ...
@overload
def make(
    name: Literal["td3"],
    env: Any = None,
    **arguments: Unpack[offpolicy.TD3Arguments],
) -> algorithms.TD3: ...
@overload
def make(
    name: Literal["td3_bc"],
    env: Any = None,
    **arguments: Unpack[offline.TD3BCArguments],
) -> algorithms.TD3BC: ...
@overload
def make(
    name: Literal["vdn"],
    env: Any = None,
    **arguments: Unpack[marl.VDNArguments],
) -> algorithms.VDN: ...
@overload
def make(
    name: str,
    env: Any = None,
    *,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    preset: str | None = None,
    callbacks: Iterable[Callback | str] | Callback | str | None = None,
    logger: LoggerCallback | str | Iterable[LoggerCallback | str] | None = None,
    log_dir: str | Path = "runs",
) -> Algorithm: ...
