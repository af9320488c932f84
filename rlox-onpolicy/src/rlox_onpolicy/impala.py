"""IMPALA: importance weighted actor-learner architecture (Espeholt et al. 2018).

Actors collect unrolls of T steps with weights that may be older than the learner's. Each update
joins U unrolls and takes one step on

    loss = -mean A log π(a|s) + c_v mean (V - vs)² - c_e mean H

with V-trace's targets vs and advantages A (eq. 1 and sec. 4.2) of the learner's current values and
probabilities. Actors send observations, actions and log μ(a|s); no value of theirs is used.

Deviations from the paper:
    1. the loss is a mean over the steps, as in RLlib; ``loss_reduction="sum"`` is the paper's, for
       which a norm of 40 is meant;
    2. where an episode was truncated, the current value of its true final observation is
       bootstrapped from, and the trace ends there;
    3. policy and value function of vectors share no parameters;
    4. rewards are clipped only on demand; weight decay and population based training are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy.typing as npt
import torch
from rlox.algorithm import Algorithm
from rlox.batches.rollout import Unroll
from rlox.batches.unrolls import join_unrolls, on_device
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.config.schedules import Schedules
from rlox.deployment import PolicyData
from rlox.learners.rollouts import ChosenLearner, choose_learner
from rlox.learners.tasks import Objective, RolloutTask
from rlox.learners.terms import AddedLosses, Losses, make_metrics
from rlox.learners.vtrace import VTraceActorCritic
from rlox.logging import LoggerCallback
from rlox.networks.validate import refuse_network_options
from rlox.nn import torch_threads
from rlox.rollouts import NETWORK_OPTIONS, PolicyMaker, minimize_over_epochs, require_objective
from rlox.training.hooks import Hooks
from torch import nn

from rlox_onpolicy.actors import fit_to_envs, make_actor_critic, start_actors, worker_options
from rlox_onpolicy.impala_config import IMPALAConfig

if TYPE_CHECKING:
    from rlox_onpolicy.option_types import IMPALAOptions, Unpack

__all__ = ["IMPALA", "IMPALAMetrics"]

LOSS_OPTIONS = (
    "gamma", "vf_coef", "ent_coef", "rho_bar", "c_bar", "pg_rho_bar", "loss_reduction",
)  # fmt: skip
"""The options that are numbers of the loss."""

SCHEDULED = ("learning_rate", "ent_coef")


@dataclass(frozen=True)
class IMPALAMetrics:
    """What one iteration reports; losses and entropy are means over its steps."""

    mean_reward: float
    """Mean return of the last 100 finished episodes; NaN before the first."""
    mean_episode_length: float
    """Mean length of the same episodes in env steps."""
    episodes: float
    """Number of episodes finished so far."""
    policy_loss: float
    value_loss: float
    entropy: float
    """In nats."""
    mean_abs_log_rho: float
    """Mean absolute difference of log π and log μ, of the policies that learn and that acted."""
    clipped_fraction: float
    """Share of steps whose ratio π/μ exceeds ``rho_bar``."""
    lag_min: float
    """Updates between the weights that acted and those that learn, over the unrolls."""
    lag_mean: float
    lag_max: float
    queue: float
    """Unrolls that were ready and wait for the next updates."""
    unrolls_dropped: float
    """So far, for a lag beyond ``max_lag``."""
    restarts: float
    """Of actors so far."""
    learning_rate: float
    added: Mapping[str, float] = field(default_factory=dict)
    """Means of the user's own losses, and of the terms of an objective of the user's own."""


@final
class IMPALA(Algorithm):
    """Actors in threads or processes, and a learner that corrects their lag by V-trace.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env (one actor), or
            a list of vector envs, one for each actor.
        n_actors: number of actors A.
        n_envs: number of envs N that each actor steps together.
        seed: fixes every random draw; ``None``: drawn from entropy.
        n_steps: length T of an unroll in steps of each env.
        policy: see :class:`rlox.rollouts.actor_critic.ActorCritic`; actors act with copies of it.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training; ``on_step`` comes when an unroll has arrived.
        worker_addresses: ``host:port`` of env workers that serve ``env_id``
            (``env_backend="grpc"``), divided evenly among the actors, or a text of them separated
            by commas; ``None``: the envs are built here. Checkpoints do not hold them.
        config: an :class:`IMPALAConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate`` or ``ent_coef``; they win
            over the config and are not saved in checkpoints.
        objective: minimised in place of the loss above; its method ``loss(policy, unroll)`` gets an
            :class:`rlox.batches.rollout.Unroll`. It brings all numbers of its loss.
        added_losses: ``{"policy": function}`` with functions ``(policy, unroll) -> scalar`` that
            are added to the loss; see :mod:`rlox.learners.terms`.
        config_kwargs: options of :class:`IMPALAConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range, or ``policy`` returns other shapes.
        EnvError: the env cannot be built.
        SpaceError: the env's spaces need a ``policy`` of your own.
    """

    name: ClassVar[str] = "impala"
    config_class: ClassVar[type[Config]] = IMPALAConfig
    config: IMPALAConfig
    learner: ChosenLearner
    added_losses: AddedLosses
    own_objective: Objective | None

    def __init__(
        self,
        env_id: Any,
        n_actors: int | Unset = UNSET,
        n_envs: int | Unset = UNSET,
        seed: int | Unset | None = UNSET,
        n_steps: int | Unset = UNSET,
        policy: nn.Module | PolicyMaker | None = None,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        worker_addresses: Sequence[str] | str | None = None,
        *,
        config: IMPALAConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        objective: Objective | None = None,
        added_losses: Losses | None = None,
        **config_kwargs: Unpack[IMPALAOptions],
    ) -> None:
        given = {"n_actors": n_actors, "n_envs": n_envs, "seed": seed, "n_steps": n_steps}
        options = {**worker_options(env_id, worker_addresses), **config_kwargs}
        resolved = resolve_config(IMPALAConfig, config, **given, **options)
        if policy is not None:
            refuse_network_options(NETWORK_OPTIONS, resolved, options)
        require_objective(objective, LOSS_OPTIONS, resolved, options, schedules)
        super().__init__(
            env_id, config=fit_to_envs(resolved, env_id), callbacks=callbacks, logger=logger
        )
        cfg = self.config
        self.schedules = Schedules(cfg, SCHEDULED, schedules)
        rmsprop = partial(
            torch.optim.RMSprop, alpha=cfg.rmsprop_alpha, eps=cfg.rmsprop_eps, momentum=0.0
        )
        self.agent, self.actors = make_actor_critic(self, env_id, rmsprop, policy)
        self.policy, self.optimizer = self.agent.policy, self.agent.optimizer
        self.added_losses = AddedLosses(added_losses, self.optimizers)
        self.own_objective = objective
        task = RolloutTask(
            self._objective(Schedules(cfg, SCHEDULED).at(0, 0)),
            self.policy,
            self.optimizer,
            self.actors,
            minimize_over_epochs,
            self.agent.device,
            added_losses=self.added_losses,
        )
        self.learner = choose_learner(cfg.backend, task)
        start_actors(self, env_id, self.agent, self.actors)

    def iterate(self, hooks: Hooks) -> IMPALAMetrics:
        """Take the unrolls that actors have collected, and one step on V-trace's loss."""
        cfg = self.config
        rates = self.schedules.at(self.clock.env_steps, self.clock.target_env_steps)
        objective, learning_rate = self._objective(rates), rates["learning_rate"]
        with torch_threads(cfg.torch_threads):
            gathered = self.actors.gather(self.agent, hooks)
            unroll: Unroll = on_device(join_unrolls(gathered.unrolls), self.agent.device)
            hooks.rollout_end(unroll)
            terms = self.learner.update(unroll, objective, learning_rate, hooks)
            self.actors.version += 1
            return make_metrics(
                IMPALAMetrics,
                terms,
                self.added_losses,
                **self.actors.statistics.metrics(),
                lag_min=gathered.lag_min,
                lag_mean=gathered.lag_mean,
                lag_max=gathered.lag_max,
                queue=gathered.queue,
                unrolls_dropped=gathered.unrolls_dropped,
                restarts=gathered.restarts,
                learning_rate=learning_rate,
            )

    def _objective(self, rates: Mapping[str, float]) -> Objective:
        """Return what is minimised now."""
        if self.own_objective is not None:
            return self.own_objective
        cfg = self.config
        return VTraceActorCritic(
            gamma=cfg.gamma,
            vf_coef=cfg.vf_coef,
            ent_coef=rates["ent_coef"],
            rho_bar=cfg.rho_bar,
            c_bar=cfg.c_bar,
            pg_rho_bar=cfg.pg_rho_bar,
            reduction=cfg.loss_reduction,
        )

    def predict(
        self,
        obs: Any,
        deterministic: bool = True,
        *,
        state: Any = UNSET,
        episode_start: npt.ArrayLike | None = None,
        action_masks: npt.ArrayLike | None = None,
    ) -> Any:
        """Return an action for one observation, or actions for a batch; see ``ActorCritic``."""
        return self.agent.predict(
            obs,
            deterministic,
            state=state,
            episode_start=episode_start,
            action_masks=action_masks,
        )

    def policy_data(self) -> PolicyData:
        """Return the policy as data; see :class:`rlox.deployment.Exportable`."""
        return self.agent.policy_data(self.name)

    def state_dict(self) -> dict[str, Any]:
        """Return policy, optimiser, actors, and the unrolls that they have collected."""
        return self.agent.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore policy, optimiser, actors and unrolls."""
        self.agent.load_state_dict(state)
