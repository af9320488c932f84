"""Proximal policy optimisation, PPO (Schulman et al. 2017, algorithm 1).

Each iteration collects T steps of N envs, estimates advantages (eq. 11 and 12, the truncated form
of GAE) and takes several epochs of minibatch steps on eq. 9.

Deviations from the paper, all from common implementations (Huang et al. 2022):
    1. advantages are standardised within each minibatch;
    2. the gradient's norm is clipped;
    3. policy and value function share no parameters;
    4. if an episode was truncated, the value of its true final observation is bootstrapped from;
    5. optional: value clip, dual clip (Ye et al. 2020), stop at a target KL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy.typing as npt
import torch
from rlox.algorithm import Algorithm
from rlox.batches.rollout import RolloutBatch, estimate_advantages
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.config.schedules import Schedules
from rlox.deployment import PolicyData
from rlox.errors import ConfigError
from rlox.learners.rollouts import ChosenLearner, choose_learner
from rlox.learners.tasks import Objective, RolloutTask
from rlox.learners.terms import (
    AddedLosses,
    Losses,
    make_metrics,
    mean_terms,
    passes_target_kl,
)
from rlox.logging import LoggerCallback
from rlox.losses import ClippedSurrogate
from rlox.networks.validate import refuse_network_options
from rlox.nn import torch_threads
from rlox.protocols import RecurrentActor
from rlox.rollouts.actor_critic import (
    NETWORK_OPTIONS,
    PolicyMaker,
    fit_to_env,
    make_agent,
    make_objective,
    require_objective,
)
from rlox.training.hooks import Hooks
from torch import nn

from rlox_onpolicy.configs import PPOConfig

if TYPE_CHECKING:
    from rlox_onpolicy.option_types import PPOOptions, Unpack

__all__ = ["PPO", "PPOMetrics", "minimize_over_epochs"]

LOSS_OPTIONS = tuple(field.name for field in fields(ClippedSurrogate))
"""The options that are numbers of the clipped surrogate."""

SCHEDULED = ("learning_rate", "clip_eps", "ent_coef")


@dataclass(frozen=True)
class PPOMetrics:
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
    """Schulman's k3 estimate of KL(old policy, policy) in nats."""
    clip_fraction: float
    """Share of steps whose ratio lay outside the clip range."""
    explained_variance: float
    """1 - Var(returns - values) / Var(returns) of the rollout; NaN for constant returns."""
    learning_rate: float
    added: Mapping[str, float] = field(default_factory=dict)
    """Means of the user's own losses, and of the terms of an objective of the user's own."""


@final
class PPO(Algorithm):
    """Proximal policy optimisation for discrete and continuous actions.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; ``None`` draws one from entropy.
        policy: see :class:`rlox.rollouts.actor_critic.ActorCritic`; ``None`` makes networks that
            fit the spaces.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: a :class:`PPOConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate``, ``clip_eps`` or
            ``ent_coef``; they win over the config and are not saved in checkpoints.
        objective: minimised in place of the clipped surrogate; see
            :class:`rlox.learners.tasks.Objective`. It brings all numbers of its loss.
        added_losses: ``{"policy": function}`` with functions ``(policy, minibatch) -> scalar`` that
            are added to the loss; see :mod:`rlox.learners.terms`.
        config_kwargs: options of :class:`PPOConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range, ``policy`` returns other shapes, or
            ``seq_len`` is given to a policy without a memory.
        EnvError: the env cannot be built.
        SpaceError: the env's spaces need a ``policy`` of your own.
    """

    name: ClassVar[str] = "ppo"
    config_class: ClassVar[type[Config]] = PPOConfig
    config: PPOConfig
    learner: ChosenLearner
    added_losses: AddedLosses
    own_objective: Objective | None

    def __init__(
        self,
        env_id: Any,
        n_envs: int | Unset = UNSET,
        seed: int | Unset | None = UNSET,
        policy: nn.Module | PolicyMaker | None = None,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        *,
        config: PPOConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        objective: Objective | None = None,
        added_losses: Losses | None = None,
        **config_kwargs: Unpack[PPOOptions],
    ) -> None:
        resolved = resolve_config(PPOConfig, config, n_envs=n_envs, seed=seed, **config_kwargs)
        if policy is not None:
            refuse_network_options(NETWORK_OPTIONS, resolved, config_kwargs)
        require_objective(objective, LOSS_OPTIONS, resolved, config_kwargs, schedules)
        super().__init__(
            env_id, config=fit_to_env(resolved, env_id), callbacks=callbacks, logger=logger
        )
        cfg = self.config
        self.schedules = Schedules(cfg, SCHEDULED, schedules)
        adam = partial(torch.optim.Adam, eps=cfg.adam_eps, fused=True)
        self.agent = make_agent(self, adam, policy)
        self.policy, self.collector = self.agent.policy, self.agent.collector
        if cfg.seq_len is not None and not isinstance(self.policy, RecurrentActor):
            raise ConfigError(
                f"seq_len is of policies with a memory, got seq_len={cfg.seq_len} and "
                f"{type(self.policy).__name__}; set recurrent='lstm' or 'gru', or leave seq_len out"
            )
        self.optimizer = self.agent.optimizer
        self.added_losses = AddedLosses(added_losses, self.optimizers)
        self.own_objective = objective
        self._surrogate = make_objective(ClippedSurrogate, cfg, Schedules(cfg, SCHEDULED).at(0, 0))
        task = RolloutTask(
            objective or self._surrogate,
            self.policy,
            self.optimizer,
            self.collector,
            minimize_over_epochs,
            self.agent.device,
            n_epochs=cfg.n_epochs,
            batch_size=cfg.batch_size,
            target_kl=cfg.target_kl,
            generator=self.streams.torch("minibatches"),
            actions=self.streams.numpy("native actions"),
            added_losses=self.added_losses,
        )
        self.learner = choose_learner(cfg.backend, task)
        self.agent.mode = self.learner.mode

    def iterate(self, hooks: Hooks) -> PPOMetrics:
        """Collect T steps of N envs, estimate advantages, and minimise the surrogate for K epochs.

        A faster learner backend than torch replaces the first of the steps and the last, which is
        :func:`minimize_over_epochs`.
        """
        cfg = self.config
        rates = self.schedules.at(self.clock.env_steps, self.clock.target_env_steps)
        objective, learning_rate = self._objective(rates), rates["learning_rate"]
        with torch_threads(cfg.torch_threads):
            unroll = self.learner.collect(cfg.n_steps, hooks)
            batch = estimate_advantages(unroll, self.policy, cfg.gamma, cfg.gae_lambda)
            hooks.rollout_end(batch)
            terms = self.learner.update(batch, objective, learning_rate, hooks)
            return make_metrics(
                PPOMetrics,
                terms,
                self.added_losses,
                **self.collector.statistics.metrics(),
                explained_variance=batch.explained_variance(),
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
        """Return policy, optimiser and collector."""
        return self.agent.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore policy, optimiser and collector."""
        self.agent.load_state_dict(state)


def minimize_over_epochs(
    task: RolloutTask,
    batch: RolloutBatch,
    objective: Objective,
    learning_rate: float,
    hooks: Hooks,
) -> dict[str, float]:
    """Minimise the objective for K epochs with minibatches of M <= NT rows (algorithm 1).

    Args:
        task: policy, optimiser, and how many epochs and rows.
        batch: the rollout.
        objective: eq. 9.
        learning_rate: Adam's.
        hooks: called after every gradient step.

    Returns:
        Means of the loss's terms over the minibatches.
    """
    assert task.batch_size is not None
    collected: list[Any] = []
    for _ in range(task.n_epochs):
        for minibatch in batch.sample_minibatches(task.batch_size, generator=task.generator):
            loss, terms = objective.loss(task.policy, minibatch)
            collected.append(terms)
            if passes_target_kl(terms, task.target_kl):
                return mean_terms(type(terms), collected)
            loss = task.added_losses.add("policy", loss, task.policy, minibatch)
            task.optimizer.step(loss, learning_rate)
            hooks.train_batch(lambda terms=terms: mean_terms(type(terms), [terms]))  # type: ignore[misc]
    return mean_terms(type(collected[0]), collected)
