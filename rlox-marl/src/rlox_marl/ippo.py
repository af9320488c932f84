"""Independent PPO for several agents (de Witt et al. 2020).

MAPPO with local critics: V(o) of what the agent itself sees in the place of V(s); see
:mod:`rlox_marl.mappo`. Deviations: MAPPO's; agents of equal spaces share a policy by default, as in
the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.config.schedules import Schedules
from rlox.learners import AddedLosses, Losses, Objective
from rlox.logging import LoggerCallback
from rlox.nn import torch_threads
from rlox.rollouts import fit_to_env
from rlox.training.hooks import Hooks

from rlox_marl.configs import IPPOConfig
from rlox_marl.learning import check_arguments, make_learning, objective_of, scheduled
from rlox_marl.mappo import MAPPOMetrics, minimize_over_epochs, report
from rlox_marl.one_agent import OneAgent
from rlox_marl.team import Team
from rlox_marl.team_algorithm import TeamAlgorithm

if TYPE_CHECKING:
    from rlox_marl.option_types import IPPOOptions, Unpack

__all__ = ["IPPO"]


@final
class IPPO(TeamAlgorithm):
    """Independent PPO: as many learners as policies, whose critics see what their actors do.

    Args:
        env_id: of several agents: a PettingZoo id, a callable that makes a PettingZoo env, such an
            env, or a :class:`rlox.protocols.MultiAgentVecEnv`; of one agent: what PPO takes.
        n_agents: number of agents; ``None``: the env's.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; ``None``: drawn from entropy.
        env_fn: makes a PettingZoo env; it is taken in the place of ``env_id``.
        policy: of several agents a callable, see :class:`rlox_marl.team.Team`; of one agent see
            :class:`rlox.rollouts.actor_critic.ActorCritic`; ``None``: networks that fit the spaces.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :class:`IPPOConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate``, ``clip_eps``,
            ``ent_coef`` or ``critic_learning_rate``; they win over the config and are not saved.
        objective: minimised by every policy in place of the clipped surrogate; see
            :class:`rlox.learners.tasks.Objective`. It brings all numbers of its loss.
        added_losses: ``{"policy": function}`` with functions ``(policy, minibatch) -> scalar`` that
            are added to the loss of every policy; see :mod:`rlox.learners.terms`.
        config_kwargs: options of :class:`IPPOConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown, out of range, or contradicts the env, the policy or the
            objective.
        EnvError: the env cannot be built.
        SpaceError: the env's spaces need a ``policy`` of your own.
    """

    name: ClassVar[str] = "ippo"
    config_class: ClassVar[type[Config]] = IPPOConfig
    config: IPPOConfig
    learning: OneAgent | Team
    added_losses: AddedLosses

    def __init__(
        self,
        env_id: Any = None,
        n_agents: int | Unset | None = UNSET,
        n_envs: int | Unset = UNSET,
        seed: int | Unset | None = UNSET,
        *,
        env_fn: Callable[[], Any] | None = None,
        policy: Any = None,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        config: IPPOConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        objective: Objective | None = None,
        added_losses: Losses | None = None,
        **config_kwargs: Unpack[IPPOOptions],
    ) -> None:
        resolved = resolve_config(
            IPPOConfig, config, n_agents=n_agents, n_envs=n_envs, seed=seed, **config_kwargs
        )
        check_arguments(resolved, config_kwargs, policy, objective, schedules)
        source = env_id if env_fn is None else env_fn
        super().__init__(
            source, config=fit_to_env(resolved, source), callbacks=callbacks, logger=logger
        )
        self.schedules = Schedules(self.config, scheduled(self.config), schedules)
        self.learning = make_learning(self, policy, objective, added_losses, minimize_over_epochs)
        self.collector = self.learning.collector

    def iterate(self, hooks: Hooks) -> MAPPOMetrics:
        """Collect T steps of N envs, and minimise each policy's surrogate for K epochs."""
        rates = self.schedules.at(self.clock.env_steps, self.clock.target_env_steps)
        objective = objective_of(self, rates)
        with torch_threads(self.config.torch_threads):
            batch: Any = self.learning.collect(hooks)
            hooks.rollout_end(batch)
            terms = self.learning.update(batch, objective, rates, hooks)
        return report(self.learning, terms, self.added_losses, rates["learning_rate"])
