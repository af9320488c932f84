"""Actor-critic (Sutton and Barto 2018, sec. 13.5).

Each iteration collects T steps of N envs and takes one step down the gradient of

    loss = -mean A_t log π(a_t|s_t) + c_v mean (V(s_t) - G_t)²,

where A_t are generalised advantage estimates and G_t = A_t + V(s_t).

Deviations from the book:
    1. one step on T·N samples instead of one on each;
    2. advantages have a trace decay λ (Schulman et al. 2016); λ = 0 gives the book's δ_t;
    3. Adam with a bound on the gradient's norm instead of plain ascent.
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

from rlox_newfamily.configs import NewAlgorithmConfig

__all__ = ["NewAlgorithm", "NewAlgorithmMetrics"]


@dataclass(frozen=True)
class NewAlgorithmMetrics:
    """What one iteration reports."""

    mean_reward: float
    """Mean return of the last 100 finished episodes; NaN before the first."""
    mean_episode_length: float
    """Mean length of the same episodes in env steps."""
    policy_loss: float
    value_loss: float
    entropy: float
    """In nats."""


@final
class NewAlgorithm(Algorithm):
    """Policy gradient with a learned value function.

    Args:
        env: a gymnasium id, a callable that makes an env, an env or a vector env.
        config: a :class:`NewAlgorithmConfig`, a mapping, or the path of a YAML or JSON file.
        callbacks: hooks into training.
        logger: receives the metrics of every iteration.
        options: options of :class:`NewAlgorithmConfig`, which win over ``config``.
    """

    name: ClassVar[str] = "new_algorithm"
    config_class: ClassVar[type[Config]] = NewAlgorithmConfig

    def __init__(
        self,
        env: Any,
        *,
        config: NewAlgorithmConfig | Mapping[str, Any] | str | Path | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        logger: LoggerCallback | None = None,
        **options: Any,
    ) -> None:
        resolved = resolve_config(NewAlgorithmConfig, config, **options)
        super().__init__(env, config=resolved, callbacks=callbacks, logger=logger)
        cfg: NewAlgorithmConfig = self.config
        self.agent = ActorCritic(
            env,
            self.streams,
            partial(torch.optim.Adam, fused=True),
            n_envs=cfg.n_envs,
            gamma=cfg.gamma,
            gae_lambda=cfg.gae_lambda,
            max_grad_norm=cfg.max_grad_norm,
            env_backend=cfg.env_backend,
        )
        self.resources.callback(self.agent.close)
        self.optimizers = {"policy": self.agent.optimizer}

    def iterate(self, hooks: Hooks) -> NewAlgorithmMetrics:
        """Collect T steps of N envs, then take one gradient step."""
        cfg: NewAlgorithmConfig = self.config
        objective = PolicyGradient(cfg.vf_coef, normalize_advantages=True)
        with torch_threads(1):
            batch = self.agent.collect(cfg.n_steps, hooks)
            loss, terms = objective.loss(self.agent.policy, batch)
            self.agent.optimizer.step(loss, cfg.learning_rate)
        episodes = self.agent.collector.statistics
        metrics = NewAlgorithmMetrics(
            mean_reward=episodes.mean_return,
            mean_episode_length=episodes.mean_length,
            policy_loss=terms.policy_loss.item(),
            value_loss=terms.value_loss.item(),
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
