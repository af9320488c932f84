"""Conservative Q-learning in Rust: the gradient steps of CQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from rlox.batches.transitions import TransitionBatch
from rlox.errors import BackendError
from rlox.learners.transitions import ReplayTask, StepResult
from rlox.networks import SquashedGaussianPolicy
from rlox.nn import flatten_parameters, standard_normal, uniform

from rlox_native.actor_critic_learner import actor_critic_learner
from rlox_native.optimizers import Adam
from rlox_native.perceptrons import batch_arrays

MOST_RANDOM_ACTIONS = 85
"""Three kinds of this many actions, plus the dataset's action, fit into a block of 256 rows."""


class NativeConservativeLearner:
    """Takes the gradient steps of ``ConservativeQ``.

    Args:
        task: the task to learn.

    Raises:
        BackendError: the networks are not the default ones, or too many actions are drawn.
    """

    def __init__(self, task: ReplayTask) -> None:
        objective = task.objective
        if objective.n_random_actions > MOST_RANDOM_ACTIONS:
            raise BackendError(
                f"it draws up to {MOST_RANDOM_ACTIONS} random actions, n_random_actions is "
                f"{objective.n_random_actions}"
            )
        parts = task.parts
        self._task = task
        self._learner = actor_critic_learner(parts, SquashedGaussianPolicy)
        self._policy = Adam(parts.optimizers["policy"], self._learner.n_policy_parameters)
        self._critic = Adam(parts.optimizers["critic"], self._learner.n_critic_parameters)
        self._alpha = Adam(parts.optimizers["alpha"], 1)
        self._multiplier = Adam(parts.optimizers["multiplier"], 1)
        self._target = flatten_parameters(parts.critic_target).numpy()
        self._steps: dict[str, Callable[[TransitionBatch, float], Any]] = {
            "learn_policy": self._learn_policy,
            "learn_values": self._learn_values,
        }

    def step(self, name: str, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take one of the objective's steps; see ``rlox.learners.transitions.ReplayLearner``."""
        task = self._task
        if name not in self._steps:
            # Cloning happens only at the beginning of a training, in torch.
            cloned: StepResult = getattr(task.objective, name)(task.parts, batch, learning_rate)
            return cloned
        return StepResult(self._steps[name](batch, learning_rate))

    def _learn_policy(self, batch: TransitionBatch, learning_rate: float) -> dict[str, Any]:
        """Take a step of the temperature, then of the policy with the new temperature."""
        objective = self._task.objective
        noise = standard_normal(batch.actions, self._task.parts.policy.generator).numpy()
        obs = batch.obs.numpy()
        if objective.target_entropy is not None:
            entropy = self._learner.entropy(self._policy.parameters, obs, noise)
            slope = entropy - objective.target_entropy
            self._alpha.step_down(slope, learning_rate)
        alpha = self._alpha.exponential()
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
        """Take a step of the multiplier and of the critics, and move the targets."""
        objective = self._task.objective
        generator, policy = self._task.parts.policy.generator, self._policy.parameters
        if objective.mode_targets:
            noise = np.zeros(batch.actions.shape, np.float32)
        else:
            noise = standard_normal(batch.actions, generator).numpy()
        like, arrays = batch.actions.expand(objective.n_random_actions, -1, -1), batch_arrays(batch)
        here, there = (standard_normal(like, generator).numpy() for _ in range(2))
        random = uniform(like, self._task.parts.stream("random actions")).numpy()
        bounds = None if batch.returns_to_go is None else batch.returns_to_go.numpy()
        penalty = np.asarray(
            self._learner.penalize(
                self._critic.parameters, policy, arrays, random, here, there, bounds
            )
        )
        if objective.penalty_target is not None:
            penalty -= objective.penalty_target
            counted = objective.penalty_weight * self._multiplier.exponential()
            self._multiplier.step_down(-counted * float(penalty.mean()), learning_rate)
        weight = objective.penalty_weight * min(self._multiplier.exponential(), 1e6)
        loss, value, _ = self._learner.step_values(
            self._critic.arguments(),
            self._target,
            policy,
            arrays,
            noise,
            learning_rate=learning_rate,
            alpha=0.0,
            scale=1.0,
            penalty_weight=weight,
        )
        self._critic.count()
        self._learner.follow(
            self._target, self._critic.parameters, tau=objective.tau, rows=len(batch.actions)
        )
        cql_loss = weight * float(penalty.sum())
        return {"q_loss": loss, "q_value": value, "cql_loss": cql_loss, "cql_alpha": weight}
