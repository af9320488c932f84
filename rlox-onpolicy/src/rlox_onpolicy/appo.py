"""APPO: asynchronous PPO with a target network (Luo et al. 2020).

Actors collect unrolls of T steps with policies μ that may be older than the learner's π, as
IMPALA's do. Every k updates the target policy π_t becomes π. Each update joins U unrolls, estimates
advantages A and value targets G by V-trace or GAE with the values of π_t, and takes K epochs of
minibatch steps on

    loss = -mean min(r A, clip(r, 1-ε, 1+ε) A) + c_1 mean (V - G)² - c_2 mean H
    r    = min(μ/π_t, β) π/μ

Deviations from the paper, IMPACT:
    1. there is no circular buffer: unrolls are learnt from in one update, for ``n_epochs``;
    2. V-trace is RLlib's default, with the ratios π_t/μ; the paper's GAE is ``advantages="gae"``;
    3. V-trace's targets are of π_t's values, where RLlib takes those of π;
    4. where an episode was truncated, the target network's value of its true final observation is
       bootstrapped from, and the trace ends there;
    5. advantages are standardised within each minibatch, as in Sample Factory;
    6. policy and value function of vectors share no parameters; the KL penalty is left out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from rlox.learners.vtrace import TargetPolicy
from rlox.logging import LoggerCallback
from rlox.losses import ClippedSurrogate
from rlox.networks.validate import refuse_network_options
from rlox.networks.values import polyak_update
from rlox.nn import load_module_state, module_state, torch_threads
from rlox.rollouts import NETWORK_OPTIONS, PolicyMaker, minimize_over_epochs, require_objective
from rlox.training.hooks import Hooks
from torch import nn

from rlox_onpolicy.actors import fit_to_envs, make_actor_critic, start_actors, worker_options
from rlox_onpolicy.appo_config import APPOConfig

if TYPE_CHECKING:
    from rlox_onpolicy.option_types import APPOOptions, Unpack

__all__ = ["APPO", "APPOMetrics"]

LOSS_OPTIONS = ("clip_eps", "vf_coef", "ent_coef", "normalize_advantages")
"""The options that are numbers of the clipped surrogate."""

SCHEDULED = ("learning_rate", "clip_eps", "ent_coef")


@dataclass(frozen=True)
class APPOMetrics:
    """What one iteration reports; losses are means over its minibatches."""

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
    approx_kl: float
    """Schulman's k3 estimate of KL(old policy, policy) in nats; the old one is that of the ratio's
    denominator."""
    clip_fraction: float
    """Share of steps whose ratio lay outside the clip range."""
    explained_variance: float
    """1 - Var(returns - values) / Var(returns) of the unrolls; NaN for constant returns."""
    mean_abs_log_rho: float
    """Mean absolute difference of log π_t and log μ, of the target policy and that which acted."""
    clipped_fraction: float
    """Share of steps whose ratio π_t/μ exceeds ``rho_bar``."""
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
class APPO(Algorithm):
    """Actors in threads or processes, and a learner that minimises PPO's surrogate.

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
        config: an :class:`APPOConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate``, ``clip_eps`` or
            ``ent_coef``; they win over the config and are not saved in checkpoints.
        objective: minimised in place of the clipped surrogate; see
            :class:`rlox.learners.tasks.Objective`. It brings all numbers of its loss.
        added_losses: ``{"policy": function}`` with functions ``(policy, minibatch) -> scalar`` that
            are added to the loss; see :mod:`rlox.learners.terms`.
        config_kwargs: options of :class:`APPOConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range, or ``policy`` returns other shapes.
        EnvError: the env cannot be built.
        SpaceError: the env's spaces need a ``policy`` of your own.
    """

    name: ClassVar[str] = "appo"
    config_class: ClassVar[type[Config]] = APPOConfig
    config: APPOConfig
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
        config: APPOConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        objective: Objective | None = None,
        added_losses: Losses | None = None,
        **config_kwargs: Unpack[APPOOptions],
    ) -> None:
        given = {"n_actors": n_actors, "n_envs": n_envs, "seed": seed, "n_steps": n_steps}
        options = {**worker_options(env_id, worker_addresses), **config_kwargs}
        resolved = resolve_config(APPOConfig, config, **given, **options)
        if policy is not None:
            refuse_network_options(NETWORK_OPTIONS, resolved, options)
        require_objective(objective, LOSS_OPTIONS, resolved, options, schedules)
        super().__init__(
            env_id, config=fit_to_envs(resolved, env_id), callbacks=callbacks, logger=logger
        )
        cfg = self.config
        self.schedules = Schedules(cfg, SCHEDULED, schedules)
        adam = partial(torch.optim.Adam, eps=cfg.adam_eps, fused=True)
        self.agent, self.actors = make_actor_critic(self, env_id, adam, policy)
        self.policy, self.optimizer = self.agent.policy, self.agent.optimizer
        self.target = copy.deepcopy(self.policy).requires_grad_(False)
        self.near_target = TargetPolicy(
            gamma=cfg.gamma,
            advantages=cfg.advantages,
            gae_lambda=cfg.gae_lambda,
            ratio_bound=cfg.ratio_bound,
            rho_bar=cfg.rho_bar,
            c_bar=cfg.c_bar,
            pg_rho_bar=cfg.pg_rho_bar,
        )
        self.added_losses = AddedLosses(added_losses, self.optimizers)
        self.own_objective = objective
        first = Schedules(cfg, SCHEDULED).at(0, 0)
        self._surrogate = ClippedSurrogate(
            clip_eps=first["clip_eps"],
            vf_coef=cfg.vf_coef,
            ent_coef=first["ent_coef"],
            normalize_advantages=cfg.normalize_advantages,
        )
        task = RolloutTask(
            objective or self._surrogate,
            self.policy,
            self.optimizer,
            self.actors,
            minimize_over_epochs,
            self.agent.device,
            n_epochs=cfg.n_epochs,
            batch_size=cfg.batch_size,
            target_kl=cfg.target_kl,
            generator=self.streams.torch("minibatches"),
            added_losses=self.added_losses,
        )
        self.learner = choose_learner(cfg.backend, task)
        start_actors(self, env_id, self.agent, self.actors)

    def iterate(self, hooks: Hooks) -> APPOMetrics:
        """Take the unrolls that actors have collected, and minimise the surrogate for K epochs."""
        cfg = self.config
        rates = self.schedules.at(self.clock.env_steps, self.clock.target_env_steps)
        objective, learning_rate = self._objective(rates), rates["learning_rate"]
        with torch_threads(cfg.torch_threads):
            if self.actors.version % cfg.target_update_interval == 0:
                polyak_update(self.policy, self.target, tau=1.0)
            gathered = self.actors.gather(self.agent, hooks)
            unroll: Unroll = on_device(join_unrolls(gathered.unrolls), self.agent.device)
            batch, ratios = self.near_target.batch(unroll, self.target)
            hooks.rollout_end(batch)
            terms = self.learner.update(batch, objective, learning_rate, hooks)
            self.actors.version += 1
            return make_metrics(
                APPOMetrics,
                terms,
                self.added_losses,
                **self.actors.statistics.metrics(),
                **ratios,
                explained_variance=batch.explained_variance(),
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
        return replace(self._surrogate, clip_eps=rates["clip_eps"], ent_coef=rates["ent_coef"])

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
        """Return policies, optimiser, actors, and the unrolls that they have collected."""
        return {**self.agent.state_dict(), "target": module_state(self.target)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore policies, optimiser, actors and unrolls."""
        self.agent.load_state_dict(state)
        load_module_state(self.target, state["target"])
