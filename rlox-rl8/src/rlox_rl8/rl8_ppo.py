"""PPO on batched envs (Schulman et al. 2017).

Each iteration collects T steps of B envs with the policy π_old and takes E passes of minibatches
down the gradient of

    loss = c_V mean min(smooth_l1(V, G), v) - mean L_π - c_H mean H,
    L_π = min(A r, A clip(r, 1 - c, 1 + c)),  r = π(a|s) / π_old(a|s).

Deviations from the paper:
    1. the value loss is smooth and bounded by v; above v it has no gradient;
    2. rewards are divided by the deviation of the reversed discounted returns;
    3. batched envs never end; all are reset after a fixed number of horizons, where V bootstraps.
       Other envs are reset when their episodes end;
    4. if d is given, L_π is at least d A where A < 0 (Ye et al. 2020);
    5. learning stops above 1.5 times a target divergence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from rlox_rl8.algorithms import AlgorithmConfig
from rlox_rl8.batched_ppo import BatchedPPO
from rlox_rl8.configs import RL8PPOConfig

if TYPE_CHECKING:
    from rlox_rl8.option_types import RL8PPOArguments, Unpack


@final
class RL8PPO(BatchedPPO):
    """PPO on batched envs.

    The arguments are those of :class:`rlox_rl8.batched_ppo.BatchedPPO`, with the options of
    :class:`RL8PPOConfig` and the parts of :class:`rlox_rl8.AlgorithmConfig`.
    """

    name = "rl8_ppo"
    config_class = RL8PPOConfig
    config: RL8PPOConfig
    agent_config = AlgorithmConfig
    arguments = ("env",)

    if TYPE_CHECKING:

        def __init__(self, env: Any, **options: Unpack[RL8PPOArguments]) -> None: ...
