"""QMIX: monotonic value function factorisation (Rashid et al. 2018).

Each agent acts ε-greedily by its own values, and the steps go into a replay buffer; each gradient
step minimises the squared error of the team's value, see :mod:`rlox_marl.value_learning`. The
team's value grows with the value of each agent (:class:`rlox_marl.action_values.MonotoneMixing`),
so the agents' own greedy actions are also the team's.

Deviations from the paper and its code (oxwhirl/pymarl):
    1. no memory by default; with one, sequences have a fixed length, begin anywhere rather than at
       episode starts, and begin with the agents' stored memory (Kapturowski et al. 2019);
    2. Adam, and target updates counted in gradient steps;
    3. double Q-learning, as in the code;
    4. where the env truncates, values are bootstrapped from the true final observation;
    5. the networks that produce the mixing weights have a hidden layer, as in hijkzzz/pymarl2 and
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
        """Return a mixing network over the state, or over the concatenated observations."""
        cfg, n_agents = self.config, len(env.possible_agents)
        options["hyper_size"] = cfg.hyper_size
        return MonotoneMixing(n_agents, team_space(env), cfg.mixing_size, **options)
