"""QMIX: monotonic value function factorisation (Rashid et al. 2018).

The envs are stepped ε-greedily, each agent by its own values, into a replay buffer; each gradient
step minimises the squared error of the team's value, see :mod:`rlox_marl.value_loss`. The team's
value grows with that of each agent (:class:`rlox_marl.mixing.MonotoneMixing`), so that agents that
are greedy on their own are greedy as a team.

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

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy.typing as npt
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.logging import LoggerCallback
from rlox.protocols import MultiAgentObs
from rlox.training.hooks import Hooks

from rlox_marl.running import fit_env_count
from rlox_marl.team_algorithm import TeamAlgorithm
from rlox_marl.value_configs import QMIXConfig
from rlox_marl.value_learning import TeamValueMetrics, ValueLearning

if TYPE_CHECKING:
    from rlox_marl.option_types import QMIXOptions, Unpack

__all__ = ["QMIX"]


@final
class QMIX(TeamAlgorithm):
    """QMIX: monotone mixing of the agents' action values.

    Args:
        env_id: of several agents: a PettingZoo id, a callable that makes a PettingZoo env, such an
            env, or a :class:`rlox.protocols.MultiAgentVecEnv`.
        n_agents: number of agents; ``None``: the env's.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; ``None``: drawn from entropy.
        env_fn: makes a PettingZoo env; it is taken in the place of ``env_id``.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :class:`QMIXConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate`` or ``epsilon``; they win
            over the config and are not saved.
        config_kwargs: options of :class:`QMIXConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown, out of range, or contradicts the env.
        EnvError: the env cannot be built.
        SpaceError: actions are not discrete, or observations have no encoder.
    """

    name: ClassVar[str] = "qmix"
    config_class: ClassVar[type[Config]] = QMIXConfig
    config: QMIXConfig
    learning: ValueLearning

    def __init__(
        self,
        env_id: Any = None,
        n_agents: int | Unset | None = UNSET,
        n_envs: int | Unset = UNSET,
        seed: int | Unset | None = UNSET,
        *,
        env_fn: Callable[[], Any] | None = None,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        config: QMIXConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        **config_kwargs: Unpack[QMIXOptions],
    ) -> None:
        resolved = resolve_config(
            QMIXConfig, config, n_agents=n_agents, n_envs=n_envs, seed=seed, **config_kwargs
        )
        source = env_id if env_fn is None else env_fn
        super().__init__(
            source, config=fit_env_count(resolved, source), callbacks=callbacks, logger=logger
        )
        self.learning = ValueLearning(self, "monotone", schedules)
        self.collector, self.schedules = self.learning.collector, self.learning.schedules

    def iterate(self, hooks: Hooks) -> TeamValueMetrics:
        """Step the envs for one iteration and learn whenever gradient steps are due."""
        return self.learning.iterate(hooks)

    def value(self, obs: MultiAgentObs) -> npt.NDArray[Any]:
        """Return what the best actions are worth in N envs as their episodes begin: (N, 1)."""
        return self.learning.value(obs)
