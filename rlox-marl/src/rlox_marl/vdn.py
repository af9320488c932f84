"""Value-decomposition networks (Sunehag et al. 2018).

:mod:`rlox_marl.qmix` with a sum instead of the mixing network: the team's value is the sum of its
agents' values. Deviations: QMIX's; agents do not communicate, and there is one kind of hidden
layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from rlox_marl.action_values import Mixing, SumMixing
from rlox_marl.configs import VDNConfig
from rlox_marl.value_learning import TeamValueAlgorithm

if TYPE_CHECKING:
    from rlox_marl.option_types import Unpack, VDNArguments


@final
class VDN(TeamValueAlgorithm):
    """VDN: the sum of the agents' action values.

    The arguments are those of :class:`rlox_marl.team_algorithm.TeamAlgorithm`, with the options of
    :class:`VDNConfig`.
    """

    name = "vdn"
    config_class = VDNConfig
    config: VDNConfig
    arguments = ("env_id", "n_agents", "n_envs", "seed")

    if TYPE_CHECKING:

        def __init__(
            self, env_id: Any = None, *given: Any, **options: Unpack[VDNArguments]
        ) -> None: ...

    def make_mixing(self, env: Any, **options: Any) -> Mixing:
        """Return the summing module."""
        return SumMixing()
