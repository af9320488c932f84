"""REINFORCE with a learned baseline (Williams 1992, eq. 11; Sutton and Barto 2018, sec. 13.4).

Each iteration collects T steps of N envs and takes one step up the gradient

    ∇J = mean over steps of (G_t - b(s_t)) ∇ log π(a_t | s_t),

where G_t is the discounted return from step t on, and one step down that of the squared error
(G_t - b(s_t))².

Deviations from Williams:
    1. the baseline b depends on the state, as in Sutton and Barto;
    2. T steps of N envs instead of one episode: where a rollout's end or a time limit cuts an
       episode, the baseline stands in for the rest of its return;
    3. G_t - b(s_t) is standardised over the rollout, so that the step size fits any reward scale;
    4. Adam with a bound on the gradient's norm instead of plain ascent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, final

import numpy.typing as npt
import torch
from rlox.algorithm import Algorithm
from rlox.callbacks import Callback
from rlox.config.model import Config, resolve_config
from rlox.logging import LoggerCallback
from rlox.losses import PolicyGradient
from rlox.nn import torch_threads
from rlox.rollouts.actor_critic import ActorCritic
from rlox.training.hooks import Hooks

from rlox_reinforce.config import ReinforceConfig

__all__ = ["Reinforce", "ReinforceMetrics"]


@dataclass(frozen=True)
class ReinforceMetrics:
    """What one iteration reports."""

    mean_reward: float
    """Mean return of the last 100 finished episodes; NaN before the first."""
    policy_loss: float
    baseline_loss: float
    """Mean squared error of the baseline, in squared returns."""
    entropy: float
    """In nats."""


@final
class Reinforce(Algorithm):
    """Monte-Carlo policy gradient for discrete and continuous actions.

    Args:
        env: a gymnasium id, a callable that makes an env, an env or a vector env.
        config: a :class:`ReinforceConfig`, a mapping, or the path of a YAML or JSON file.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        options: options of :class:`ReinforceConfig`, which win over ``config``.
    """

    name: ClassVar[str] = "reinforce"
    config_class: ClassVar[type[Config]] = ReinforceConfig

    def __init__(
        self,
        env: Any,
        *,
        config: ReinforceConfig | Mapping[str, Any] | str | Path | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        **options: Any,
    ) -> None:
        resolved = resolve_config(ReinforceConfig, config, **options)
        super().__init__(env, config=resolved, callbacks=callbacks, logger=logger)
        cfg: ReinforceConfig = self.config
        self.agent = ActorCritic(
            env,
            self.streams,
            partial(torch.optim.Adam, fused=True),
            hidden=cfg.hidden,
            max_grad_norm=cfg.max_grad_norm,
            n_envs=cfg.n_envs,
            gamma=cfg.gamma,
            gae_lambda=1.0,  # then a batch's returns are the Monte-Carlo returns G_t
        )
        self.resources.callback(self.agent.close)
        self.optimizers = {"policy": self.agent.optimizer}

    def iterate(self, hooks: Hooks) -> ReinforceMetrics:
        """Collect T steps of N envs, then take one gradient step."""
        cfg: ReinforceConfig = self.config
        with torch_threads(1):
            batch = self.agent.collect(cfg.n_steps, hooks)
            # for λ = 1 the advantages are G_t - b(s_t)
            objective = PolicyGradient(cfg.baseline_coef, normalize_advantages=True)
            loss, terms = objective.loss(self.agent.policy, batch)
            self.agent.optimizer.step(loss, cfg.learning_rate)
        episodes = self.agent.collector.statistics
        metrics = ReinforceMetrics(
            mean_reward=episodes.mean_return,
            policy_loss=terms.policy_loss.item(),
            baseline_loss=terms.value_loss.item(),
            entropy=terms.entropy.item(),
        )
        hooks.train_batch(lambda: vars(metrics))
        return metrics

    def predict(self, obs: npt.ArrayLike, deterministic: bool = True) -> Any:
        """Return an action for one observation, or actions for a batch; see ``Algorithm``."""
        return self.agent.predict(obs, deterministic)

    def state_dict(self) -> dict[str, Any]:
        """Return policy, optimiser and collector."""
        return self.agent.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore policy, optimiser and collector."""
        self.agent.load_state_dict(state)
