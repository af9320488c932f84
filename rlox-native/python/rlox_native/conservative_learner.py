"""The gradient steps of CQL in Rust."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rlox.errors import BackendError
from rlox.networks import SquashedGaussianPolicy
from rlox.nn import flatten_parameters, standard_normal, uniform

from rlox_native.actor_critic_learner import actor_critic_learner
from rlox_native.optimizers import Adam
from rlox_native.perceptrons import batch_arrays, report_terms

if TYPE_CHECKING:
    from rlox.batches.transitions import TransitionBatch
    from rlox.learners.transitions import ReplayTask

__all__ = ["NativeConservativeLearner"]

MOST_RANDOM_ACTIONS = 85
"""As many of each of three kinds, and the dataset's action, fit into a block of 256 rows."""


class NativeConservativeLearner:
    """Takes the gradient steps of CQL.

    Args:
        task: what is to be learnt.

    Raises:
        BackendError: the networks are not the default ones, or too many actions are drawn.
    """

    def __init__(self, task: ReplayTask) -> None:
        config: Any = task.config
        if config.n_random_actions > MOST_RANDOM_ACTIONS:
            raise BackendError(
                f"it draws up to {MOST_RANDOM_ACTIONS} random actions, n_random_actions is "
                f"{config.n_random_actions}"
            )
        parts = task.parts
        self._task = task
        self._learner = actor_critic_learner(parts, SquashedGaussianPolicy)
        self._policy = Adam(parts["policy_optimizer"], self._learner.n_policy_parameters)
        self._critic = Adam(parts["critic_optimizer"], self._learner.n_critic_parameters)
        self._alpha = Adam(parts["alpha_optimizer"], 1)
        self._multiplier = Adam(parts["multiplier_optimizer"], 1)
        self._lagging = flatten_parameters(parts["target"])
        self._steps = {"policy": self._learn_policy, "values": self._learn_values}

    def step(self, name: str, batch: TransitionBatch, learning_rate: float) -> Any:
        """Do one of the algorithm's steps; see ``rlox.learners.transitions.ReplayLearner``."""
        if name not in self._steps:
            # Cloning is for the beginning of a training, and torch does it.
            return self._task.steps[name].learn(batch, learning_rate)
        return report_terms(self._task, name, **self._steps[name](batch, learning_rate))

    def _learn_policy(self, batch: TransitionBatch, learning_rate: float) -> dict[str, Any]:
        """Take the steps of the temperature and, with what it has become, of the policy."""
        config: Any = self._task.config
        noise = standard_normal(batch.actions, self._task.parts["policy"].generator).numpy()
        obs = batch.obs.numpy()
        if config.auto_entropy:
            entropy = self._learner.entropy(self._policy.parameters, obs, noise)
            slope = entropy - self._task.constants["target_entropy"]
            self._alpha.step_down(torch.tensor([slope]), learning_rate)
        alpha = _exponential(self._alpha)
        loss, entropy = self._learner.step_policy(
            self._policy.arguments(),
            self._critic.parameters,
            obs,
            noise,
            learning_rate=learning_rate,
            alpha=alpha,
        )
        self._policy.count()
        return {"policy_loss": loss, "entropy": entropy, "alpha": alpha}

    def _learn_values(self, batch: TransitionBatch, learning_rate: float) -> dict[str, Any]:
        """Take the steps of the multiplier and of the critics, and move the lagging ones."""
        config: Any = self._task.config
        generator, policy = self._task.parts["policy"].generator, self._policy.parameters
        if config.mode_targets:
            noise = np.zeros(batch.actions.shape, np.float32)
        else:
            noise = standard_normal(batch.actions, generator).numpy()
        like, arrays = batch.actions.expand(config.n_random_actions, -1, -1), batch_arrays(batch)
        here, there = (standard_normal(like, generator).numpy() for _ in range(2))
        random = uniform(like, self._task.streams["random actions"]).numpy()
        bounds = None if batch.returns_to_go is None else batch.returns_to_go.numpy()
        penalty = np.asarray(
            self._learner.penalize(
                self._critic.parameters, policy, arrays, random, here, there, bounds
            )
        )
        if config.auto_alpha:
            penalty -= config.cql_target_value
            slope = -_exponential(self._multiplier) * config.cql_alpha * float(penalty.mean())
            self._multiplier.step_down(torch.tensor([slope]), learning_rate)
        weight = config.cql_alpha * min(_exponential(self._multiplier), 1e6)
        loss, value, _ = self._learner.step_values(
            self._critic.arguments(),
            self._lagging.numpy(),
            policy,
            arrays,
            noise,
            learning_rate=learning_rate,
            alpha=0.0,
            scale=1.0,
            penalty_weight=weight,
        )
        self._critic.count()
        self._lagging.lerp_(self._task.parts["critic_optimizer"].parameters, config.tau)
        cql_loss = weight * float(penalty.sum())
        return {"q_loss": loss, "q_value": value, "cql_loss": cql_loss, "cql_alpha": weight}


def _exponential(learnt: Adam) -> float:
    """Return the number whose logarithm is learnt."""
    return math.exp(learnt.parameters[0])
