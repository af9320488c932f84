"""Value-decomposition networks (Sunehag et al. 2018).

:mod:`rlox_marl.qmix` with a sum in the place of the mixing network: the team's value is the sum of
its agents' values. Deviations: QMIX's; agents do not talk to each other, and there is one kind of
hidden layer.
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
from rlox_marl.value_configs import VDNConfig
from rlox_marl.value_learning import TeamValueMetrics, ValueLearning

if TYPE_CHECKING:
    from rlox_marl.option_types import Unpack, VDNOptions

__all__ = ["VDN"]


@final
class VDN(TeamAlgorithm):
    """VDN: the sum of the agents' action values.

    Args:
        env_id: of several agents: a PettingZoo id, a callable that makes a PettingZoo env, such an
            env, or a :class:`rlox.protocols.MultiAgentVecEnv`.
        n_agents: number of agents; ``None``: the env's.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; ``None``: drawn from entropy.
        env_fn: makes a PettingZoo env; it is taken in the place of ``env_id``.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :class:`VDNConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate`` or ``epsilon``; they win
            over the config and are not saved.
        config_kwargs: options of :class:`VDNConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown, out of range, or contradicts the env.
        EnvError: the env cannot be built.
        SpaceError: actions are not discrete, or observations have no encoder.
    """

    name: ClassVar[str] = "vdn"
    config_class: ClassVar[type[Config]] = VDNConfig
    config: VDNConfig
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
        config: VDNConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        **config_kwargs: Unpack[VDNOptions],
    ) -> None:
        resolved = resolve_config(
            VDNConfig, config, n_agents=n_agents, n_envs=n_envs, seed=seed, **config_kwargs
        )
        source = env_id if env_fn is None else env_fn
        super().__init__(
            source, config=fit_env_count(resolved, source), callbacks=callbacks, logger=logger
        )
        self.learning = ValueLearning(self, "sum", schedules)
        self.collector, self.schedules = self.learning.collector, self.learning.schedules

    def iterate(self, hooks: Hooks) -> TeamValueMetrics:
        """Step the envs for one iteration and learn whenever gradient steps are due."""
        return self.learning.iterate(hooks)

    def value(self, obs: MultiAgentObs) -> npt.NDArray[Any]:
        """Return what the best actions are worth in N envs as their episodes begin: (N, 1)."""
        return self.learning.value(obs)
