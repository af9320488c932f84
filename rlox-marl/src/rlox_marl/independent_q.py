"""Independent Q-learning of several agents (Tan 1993; Tampuu et al. 2017).

:mod:`rlox_marl.qmix` without mixing: every agent learns its own values from its own rewards, and
treats the others as part of the env. Agents must act at every step until they end. Deviations:
QMIX's; agents with equal spaces share a network by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from rlox_marl.action_values import Mixing, NoMixing
from rlox_marl.configs import IndependentQConfig
from rlox_marl.value_learning import TeamValueAlgorithm

if TYPE_CHECKING:
    from rlox_marl.option_types import IndependentQArguments, Unpack


@final
class IndependentQ(TeamValueAlgorithm):
    """Independent Q-learning: every agent learns its own action values.

    The arguments are those of :class:`rlox_marl.team_algorithm.TeamAlgorithm`, with the options of
    :class:`IndependentQConfig`.
    """

    name = "independent_q"
    config_class = IndependentQConfig
    config: IndependentQConfig
    arguments = ("env_id", "n_agents", "n_envs", "seed")

    if TYPE_CHECKING:

        def __init__(
            self, env_id: Any = None, *given: Any, **options: Unpack[IndependentQArguments]
        ) -> None: ...

    def make_mixing(self, env: Any, **options: Any) -> Mixing:
        """Return a module that leaves the values unmixed."""
        return NoMixing()
