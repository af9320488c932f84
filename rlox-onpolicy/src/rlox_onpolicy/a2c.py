"""Synchronous advantage actor-critic (Mnih et al. 2016, algorithm S3, without the asynchrony).

Each iteration collects T steps of N envs and takes one step on

    loss = -mean A log π(a|s) + c_v mean (V - G)² - c_e mean H

Deviations from the paper:
    1. all envs step together and one gradient is taken over all of them (openai/baselines a2c);
    2. advantages are GAE's, which for λ = 1 are the paper's n-step ones;
    3. the gradient's norm is clipped;
    4. policy and value function share no parameters;
    5. where an episode was truncated, the value of its true final observation is bootstrapped from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, final

import numpy.typing as npt
import torch
from rlox.algorithm import Algorithm
from rlox.batches.rollout import RolloutBatch, RolloutMinibatch
from rlox.callbacks import Callback
from rlox.config.model import UNSET, Config, Unset, resolve_config
from rlox.config.schedules import Schedules
from rlox.learners.rollouts import ChosenLearner, LearningTask, choose_learner
from rlox.logging import LoggerCallback
from rlox.networks.predict import evaluate_actions
from rlox.networks.validate import refuse_network_options
from rlox.nn import torch_threads
from rlox.rollouts.actor_critic import PolicyMaker, fit_to_env
from rlox.training.hooks import Hooks
from torch import Tensor, nn

from rlox_onpolicy.agent import NETWORK_OPTIONS, learn, make_agent
from rlox_onpolicy.configs import A2CConfig

__all__ = ["A2C", "A2CMetrics"]


@dataclass(frozen=True)
class A2CMetrics:
    """What one iteration reports."""

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
    explained_variance: float
    """1 - Var(returns - values) / Var(returns) of the rollout; NaN for constant returns."""
    learning_rate: float


@dataclass(frozen=True)
class A2CTerms:
    """The parts of the loss; scalars without gradient."""

    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor


@final
class A2C(Algorithm):
    """Synchronous advantage actor-critic for discrete and continuous actions.

    Args:
        env_id: a gymnasium id, a callable that makes an env, an env or a vector env.
        n_envs: number of envs stepped together; an env that cannot be copied brings its own.
        seed: fixes every random draw; none: drawn from entropy.
        policy: see :class:`rlox.rollouts.actor_critic.ActorCritic`.
        logger: receives the metrics of every iteration.
        callbacks: hooks into training.
        config: an :class:`A2CConfig`, a mapping, or the path of a YAML or JSON file.
        schedules: callables ``env_steps -> value`` for ``learning_rate`` or ``ent_coef``; they win
            over the config and are not saved in checkpoints.
        config_kwargs: options of :class:`A2CConfig`, which win over ``config``.

    Raises:
        ConfigError: an option is unknown or out of range, or ``policy`` returns other shapes.
        EnvError: the env cannot be built.
        SpaceError: the env's spaces need a ``policy`` of your own.
    """

    name: ClassVar[str] = "a2c"
    config_class: ClassVar[type[Config]] = A2CConfig
    learner: ChosenLearner

    def __init__(
        self,
        env_id: Any,
        n_envs: int | Unset = UNSET,
        seed: int | Unset | None = UNSET,
        policy: nn.Module | PolicyMaker | None = None,
        logger: LoggerCallback | None = None,
        callbacks: Iterable[Callback] | Callback | None = None,
        *,
        config: A2CConfig | Mapping[str, Any] | str | Path | None = None,
        schedules: Mapping[str, Callable[[int], float]] | None = None,
        **config_kwargs: Any,
    ) -> None:
        resolved = resolve_config(A2CConfig, config, n_envs=n_envs, seed=seed, **config_kwargs)
        if policy is not None:
            refuse_network_options(NETWORK_OPTIONS, resolved, config_kwargs)
        super().__init__(
            env_id, config=fit_to_env(resolved, env_id), callbacks=callbacks, logger=logger
        )
        cfg: A2CConfig = self.config
        self.schedules = Schedules(cfg, ("learning_rate", "ent_coef"), schedules)
        rmsprop = partial(torch.optim.RMSprop, alpha=cfg.rmsprop_alpha, eps=cfg.rmsprop_eps)
        self.agent = make_agent(self, rmsprop, policy)
        self.policy, self.collector = self.agent.policy, self.agent.collector
        self.optimizer = self.agent.optimizer
        task = LearningTask(
            self.name, cfg, self.agent, self._loss, actions=self.streams.numpy("native actions")
        )
        self.learner = choose_learner(cfg.backend, task)

    def iterate(self, hooks: Hooks) -> A2CMetrics:
        """Collect T steps of N envs, then take one gradient step."""
        cfg: A2CConfig = self.config
        rates = self.schedules.at(self.clock.env_steps, self.clock.target_env_steps)
        with torch_threads(cfg.torch_threads):
            batch = self.learner.collect(cfg.n_steps, hooks)
            return A2CMetrics(**learn(self.agent, self.learner, batch, rates, hooks))

    def _loss(
        self, batch: RolloutBatch | RolloutMinibatch, rates: Mapping[str, float]
    ) -> tuple[Tensor, A2CTerms]:
        cfg: A2CConfig = self.config
        advantages = batch.advantages
        if cfg.normalize_advantages:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        log_probs, entropy, values = evaluate_actions(self.policy, batch)
        policy_loss = -(advantages * log_probs).mean()
        value_loss = (values - batch.returns).square().mean()
        mean_entropy = entropy.mean()
        loss = policy_loss + cfg.vf_coef * value_loss - rates["ent_coef"] * mean_entropy
        return loss, A2CTerms(policy_loss.detach(), value_loss.detach(), mean_entropy.detach())

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

    def state_dict(self) -> dict[str, Any]:
        """Return policy, optimiser and collector."""
        return self.agent.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore policy, optimiser and collector."""
        self.agent.load_state_dict(state)
