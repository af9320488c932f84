"""Independent PPO for several agents (de Witt et al. 2020).

MAPPO with local critics: V(o) of the agent's own observation replaces V(s); see
:mod:`rlox_marl.mappo`. Deviations: MAPPO's; agents with equal spaces share a policy by default, as
in the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from rlox_marl.configs import IPPOConfig
from rlox_marl.mappo import MAPPOMetrics, make_surrogate
from rlox_marl.team import TeamRolloutAlgorithm

if TYPE_CHECKING:
    from rlox_marl.option_types import IPPOArguments, Unpack


@final
class IPPO(TeamRolloutAlgorithm):
    """Independent PPO: one learner per policy, whose critic sees the same as its actor.

    The arguments are those of :class:`rlox_marl.team.TeamRolloutAlgorithm`, with the options of
    :class:`IPPOConfig`.
    """

    name = "ippo"
    config_class = IPPOConfig
    config: IPPOConfig
    metrics_class = MAPPOMetrics
    arguments = ("env_id", "n_agents", "n_envs", "seed")
    make_objective = staticmethod(make_surrogate)

    if TYPE_CHECKING:

        def __init__(
            self, env_id: Any = None, *given: Any, **options: Unpack[IPPOArguments]
        ) -> None: ...
