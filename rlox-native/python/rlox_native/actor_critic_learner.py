"""Soft and twin delayed actor-critics in Rust: SAC, TD3, DDPG and TD3+BC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rlox.batches.transitions import TransitionBatch
from rlox.learners.transitions import Parts, ReplayTask, StepResult
from rlox.networks import DeterministicPolicy, SquashedGaussianPolicy, TwinQNetwork
from rlox.nn import EnsembleMLP, flatten_parameters
from torch import Tensor, nn

from rlox_native._native import ContinuousLearner
from rlox_native.optimizers import Adam
from rlox_native.perceptrons import (
    activation_of,
    as_array,
    batch_arrays,
    make_rust_learner,
    require_types,
    sizes_of,
)


class NormalNoise:
    """Draws the numbers of ``rlox.nn.standard_normal`` into memory that is kept.

    A tensor and its array take torch several times as long as what is drawn for a batch.

    Args:
        width: numbers in a row.
    """

    def __init__(self, width: int) -> None:
        self._numbers = torch.empty(0, width, dtype=torch.float32)
        self._array: npt.NDArray[Any] = self._numbers.numpy()

    def draw(self, rows: int, generator: torch.Generator | None) -> npt.NDArray[Any]:
        """Return an array (rows, width), which the next call writes over."""
        if len(self._array) != rows:
            self._numbers = self._numbers.new_empty(rows, self._numbers.shape[1])
            self._array = self._numbers.numpy()
        self._numbers.normal_(generator=generator)
        return self._array


class NativeActorCriticLearner:
    """Takes the gradient steps of ``SoftActorCritic``, ``TwinDelayed`` and ``TwinDelayedCloning``.

    Args:
        task: what is to be learnt.

    Raises:
        BackendError: the networks are not the default ones.
    """

    takes_arrays = True
    """See ``rlox.learners.transitions.ReplayLearner``."""

    def __init__(self, task: ReplayTask) -> None:
        parts, self._objective = task.parts, task.objective
        self._parts = parts
        self._soft = soft = hasattr(task.objective, "target_entropy")
        policy = SquashedGaussianPolicy if soft else DeterministicPolicy
        self._learner = actor_critic_learner(parts, policy)
        self._policy = Adam(parts.optimizers["policy"], self._learner.n_policy_parameters)
        self._critic = Adam(parts.optimizers["critic"], self._learner.n_critic_parameters)
        self._acting, self._next, self._present = (
            NormalNoise(self._learner.act_dim) for _ in range(3)
        )
        self._steps: dict[str, Callable[[TransitionBatch, float], StepResult]]
        names = ["critic"] if soft else ["critic", "policy"]
        self._targets = {
            name: flatten_parameters(parts.networks[f"{name}_target"]).numpy() for name in names
        }
        if soft:
            self._alpha = Adam(parts.optimizers["alpha"], 1)
            self._steps = {"learn": self._learn_softly}
        else:
            self._steps = {"learn_values": self._learn_values, "learn_policy": self._learn_policy}

    def step(self, name: str, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take one of the objective's steps; see ``rlox.learners.transitions.ReplayLearner``."""
        return self._steps[name](batch, learning_rate)

    def act(self, obs: Tensor | npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return actions (N, act_dim): a sample of a Gaussian policy, the mode of another."""
        noise = None
        if self._soft:
            noise = self._acting.draw(len(obs), self._parts.policy.generator)
        return self._learner.act(self._policy.parameters, as_array(obs), noise)

    def gradients(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the gradients of the last steps of policy and critics, like their parameters."""
        return self._learner.gradients()

    def _learn_softly(self, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take the steps of SAC: critics, policy, temperature, target."""
        objective = self._objective
        policy, rows = self._policy.parameters, len(batch.actions)
        generator, alpha = self._parts.policy.generator, self._alpha.exponential()
        # Both before the products, which fill the caches.
        of_next = self._next.draw(rows, generator)
        of_present = self._present.draw(rows, generator)
        learnt = self._step_values(batch, policy, of_next, learning_rate, alpha=alpha, scale=0.5)
        # The policy's step neither reads the target nor moves the critics, which are at hand now.
        self._follow("critic", self._critic, rows)
        policy_loss, entropy = self._step_policy(batch, of_present, learning_rate, alpha=alpha)
        if objective.target_entropy is not None:
            # J_α is log α (H - H̄)
            slope = entropy - objective.target_entropy
            self._alpha.step_down(slope, learning_rate)
        terms = {"policy_loss": policy_loss, "entropy": entropy, "alpha": alpha}
        return StepResult({**learnt.terms, **terms}, learnt.errors)

    def _learn_values(self, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take TD3's step of the critics."""
        objective = self._objective
        noise = None
        if objective.target_noise > 0:
            noise = self._next.draw(len(batch.actions), self._parts.stream("target noise"))
            noise *= objective.target_noise
            np.maximum(noise, -objective.noise_clip, out=noise)
            np.minimum(noise, objective.noise_clip, out=noise)
        policy = self._targets["policy"]
        return self._step_values(batch, policy, noise, learning_rate, alpha=0.0, scale=1.0)

    def _learn_policy(self, batch: TransitionBatch, learning_rate: float) -> StepResult:
        """Take TD3's step of the policy, or TD3+BC's, and move the targets."""
        alpha = getattr(self._objective, "alpha", None)
        cloning = None if alpha is None else (as_array(batch.actions), alpha)
        policy_loss, _ = self._step_policy(batch, None, learning_rate, cloning=cloning)
        for name, learnt in (("policy", self._policy), ("critic", self._critic)):
            self._follow(name, learnt, len(batch.actions))
        return StepResult({"policy_loss": policy_loss})

    def _step_values(
        self,
        batch: TransitionBatch,
        policy: Any,
        noise: Any,
        learning_rate: float,
        **options: float,
    ) -> StepResult:
        loss, value, errors = self._learner.step_values(
            self._critic.arguments(),
            self._targets["critic"],
            policy,
            batch_arrays(batch),
            noise,
            learning_rate=learning_rate,
            **options,
        )
        self._critic.count()
        # numbers: a tensor takes torch several microseconds
        return StepResult({"q_loss": loss, "q_value": value}, errors)

    def _step_policy(
        self,
        batch: TransitionBatch,
        noise: Any,
        learning_rate: float,
        *,
        alpha: float = 0.0,
        cloning: tuple[Any, float] | None = None,
    ) -> tuple[float, float]:
        terms = self._learner.step_policy(
            self._policy.arguments(),
            self._critic.parameters,
            as_array(batch.obs),
            noise,
            learning_rate=learning_rate,
            alpha=alpha,
            cloning=cloning,
        )
        self._policy.count()
        return terms

    def _follow(self, name: str, learnt: Adam, rows: int) -> None:
        """Move a target network, as ``rlox.networks.polyak_update`` does."""
        tau = self._objective.tau
        self._learner.follow(self._targets[name], learnt.parameters, tau=tau, rows=rows)


def actor_critic_learner(parts: Parts, kind: type[nn.Module]) -> ContinuousLearner:
    """Return a Rust learner of the networks ``policy`` and ``critic``.

    Raises:
        BackendError: they are not the default ones, the policy not one of class ``kind``.
    """
    policy, critic = parts.policy, parts.critic
    squashed = kind is SquashedGaussianPolicy
    own = not squashed and type(policy) is nn.Sequential
    own = own and [type(layer) for layer in policy[-1:]] == [nn.Tanh]
    require_types((policy, nn.Sequential if own else kind), (critic, TwinQNetwork))
    require_types((critic.net, EnsembleMLP))
    actor = policy[:-1] if own else policy.net
    obs_dim, *hidden, outputs = sizes_of(actor)
    act_dim = outputs // 2 if squashed else outputs
    activation = activation_of(actor)
    _, *of_critics, _ = sizes_of(critic.net, activation)
    return make_rust_learner(
        ContinuousLearner,
        obs_dim,
        act_dim,
        hidden,
        critic.net.n_members,
        critic_hidden=of_critics,
        log_std_bounds=policy.log_std_bounds if squashed else None,
        tanh=activation == "tanh",
    )
