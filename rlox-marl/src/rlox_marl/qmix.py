"""QMIX: monotonic value function factorisation (Rashid et al. 2018).

The envs are stepped ε-greedily, each agent by its own values, into a replay buffer; each gradient
step minimises the squared error of the team's value, see :mod:`rlox_marl.value_learning`. The
team's value grows with that of each agent (:class:`rlox_marl.action_values.MonotoneMixing`), so
that agents that are greedy on their own are greedy as a team.

Deviations from the paper and its code (oxwhirl/pymarl):
    1. without a memory by default; with one, sequences are of fixed length, begin anywhere, and
       start with the memory that the agents had (Kapturowski et al. 2019), not with episodes;
    2. Adam, and target updates counted in gradient steps;
    3. double Q-learning, as in the code;
    4. of an env that truncates, values are bootstrapped from the true final observation;
    5. the networks that make the mixing's weights have a hidden layer, as in hijkzzz/pymarl2 and
       uoe-agents/epymarl; ``hyper_size=0`` leaves it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from rlox.protocols import MultiAgentVecEnv

from rlox_marl.action_values import Mixing, MonotoneMixing
from rlox_marl.configs import QMIXConfig
from rlox_marl.value_learning import TeamValueAlgorithm
from rlox_marl.views import team_space

if TYPE_CHECKING:
    from rlox_marl.option_types import QMIXArguments, Unpack


@final
class QMIX(TeamValueAlgorithm):
    """QMIX: monotone mixing of the agents' action values.

    The arguments are those of :class:`rlox_marl.team_algorithm.TeamAlgorithm`, with the options of
    :class:`QMIXConfig`.
    """

    name = "qmix"
    config_class = QMIXConfig
    config: QMIXConfig
    arguments = ("env_id", "n_agents", "n_envs", "seed")

    if TYPE_CHECKING:

        def __init__(
            self, env_id: Any = None, *given: Any, **options: Unpack[QMIXArguments]
        ) -> None: ...

    def make_mixing(self, env: MultiAgentVecEnv, **options: Any) -> Mixing:
        """Return a network over the state, or over all observations side by side."""
        cfg, n_agents = self.config, len(env.possible_agents)
        options["hyper_size"] = cfg.hyper_size
        return MonotoneMixing(n_agents, team_space(env), cfg.mixing_size, **options)
