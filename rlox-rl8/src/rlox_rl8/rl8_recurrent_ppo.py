"""Recurrent PPO on batched envs: :mod:`rlox_rl8.rl8_ppo` with sequences as samples.

A sequence of ``seq_len`` steps starts from the state stored while collecting, without a gradient.
The loss and the deviations from the paper are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from rlox_rl8.algorithms import RecurrentAlgorithmConfig
from rlox_rl8.batched_ppo import BatchedPPO
from rlox_rl8.configs import RL8RecurrentPPOConfig

if TYPE_CHECKING:
    from rlox_rl8.option_types import RL8RecurrentPPOArguments, Unpack


@final
class RL8RecurrentPPO(BatchedPPO):
    """Recurrent PPO on batched envs.

    The arguments are those of :class:`rlox_rl8.batched_ppo.BatchedPPO`, with the options of
    :class:`RL8RecurrentPPOConfig` and the parts of :class:`rlox_rl8.RecurrentAlgorithmConfig`.
    """

    name = "rl8_recurrent_ppo"
    config_class = RL8RecurrentPPOConfig
    config: RL8RecurrentPPOConfig
    agent_config = RecurrentAlgorithmConfig
    arguments = ("env",)

    if TYPE_CHECKING:

        def __init__(self, env: Any, **options: Unpack[RL8RecurrentPPOArguments]) -> None: ...
