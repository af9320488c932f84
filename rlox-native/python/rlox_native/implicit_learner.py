"""Implicit Q-learning in Rust: the gradient step of IQL."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from rlox.batches.transitions import TransitionBatch
from rlox.errors import BackendError
from rlox.learners.transitions import Parts, ReplayTask, StepResult
from rlox.networks import GaussianPolicy, TwinQNetwork, ValueNetwork
from rlox.nn import EnsembleMLP, flatten_parameters

from rlox_native._native import ImplicitLearner
from rlox_native.optimizers import Adam
from rlox_native.perceptrons import (
    activation_of,
    batch_arrays,
    make_rust_learner,
    require_types,
    sizes_of,
)

NETWORKS = ("value", "policy", "critic")


class NativeImplicitLearner:
    """Takes the gradient steps of ``ImplicitQ``.

    Args:
        task: the task to learn.

    Raises:
        BackendError: the networks are not the default ones, or the policy has no likelihood.
    """

    def __init__(self, task: ReplayTask) -> None:
        objective = task.objective
        self._task = task
        self._learner = _implicit_learner(task.parts)
        if not objective.stochastic:
            raise BackendError(
                "it learns likelihoods, and stochastic=False requires squared errors"
            )
        self._adams = [
            Adam(task.parts.optimizers[name], n_parameters)
            for name, n_parameters in zip(NETWORKS, self._learner.n_parameters, strict=True)
        ]
        self._target = flatten_parameters(task.parts.critic_target)
        names = ("expectile", "temperature", "max_weight")
        self._losses = {name: getattr(objective, name) for name in names}

    def step(self, name: str, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take the step ``learn``; see ``rlox.learners.transitions.ReplayLearner``."""
        objective = self._task.objective
        value, policy, critics = (adam.arguments() for adam in self._adams)
        terms = self._learner.step(
            value,
            policy,
            critics,
            self._target.numpy(),
            batch_arrays(batch),
            learning_rate=objective.learning_rate,
            policy_learning_rate=learning_rate,
            **self._losses,
        )
        for adam in self._adams:
            adam.count()
        self._target.lerp_(self._task.parts.optimizers["critic"].parameters, objective.tau)
        names = ("value_loss", "q_loss", "policy_loss", "q_value", "weight")
        return StepResult(dict(zip(names, terms, strict=True)))

    def gradients(self) -> list[npt.NDArray[Any]]:
        """Return the gradients of the last step of value, policy and critics."""
        return self._learner.gradients()


def _implicit_learner(parts: Parts) -> ImplicitLearner:
    value, policy, critic = (parts.networks[name] for name in NETWORKS)
    require_types((value, ValueNetwork), (policy, GaussianPolicy), (critic, TwinQNetwork))
    require_types((critic.net, EnsembleMLP))
    obs_dim, *hidden, act_dim = sizes_of(policy.net)
    activation = activation_of(policy.net)
    _, *of_critics, _ = sizes_of(critic.net, activation)
    if sizes_of(value.net, activation) != [obs_dim, *of_critics, 1]:
        raise BackendError("it learns values and critics of the same widths")
    return make_rust_learner(
        ImplicitLearner,
        obs_dim,
        act_dim,
        hidden,
        critic.net.n_members,
        critic_hidden=of_critics,
        log_std_bounds=policy.log_std_bounds,
        tanh=activation == "tanh",
    )
