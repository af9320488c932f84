"""The choice of a learner backend, and tasks with perceptrons as policies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt
from torch import Tensor, nn

from rlox import registry
from rlox.errors import BackendError
from rlox.protocols import VecEnv


@dataclass(frozen=True)
class SeparatePerceptrons:
    """An actor and a critic that are perceptrons with their own inputs.

    A policy's method ``perceptrons`` returns it, so that a learner backend can replace the policy's
    torch code; ``None`` if the policy does more. A subclass does not inherit the method.
    """

    actor: Any
    """:class:`rlox.nn.MLP` from its inputs to the outputs of the action head."""
    critic: Any
    """:class:`rlox.nn.MLP` from its inputs to one value."""
    inputs: Callable[[Any], tuple[Tensor, Tensor]]
    """Maps observations of B steps to the inputs (B, n) of both; without parameters."""
    action_space: Any
    """Action space of the policy. Continuous actions are Gaussian, with log standard deviations as
    the policy's first parameters; :class:`rlox.nn.ActionHead` defines discrete ones."""


def find_learner(backend: str, task: Any, *, role: str = "the learner") -> tuple[Any, str, str]:
    """Return a learner, the name of its backend and the reason for the choice; log the latter two.

    Args:
        backend: registered name; ``"auto"`` takes the one of highest priority that can do the task.
        task: the task to learn, a :class:`rlox.learners.rollouts.RolloutTask` or a
            :class:`rlox.learners.transitions.ReplayTask`.
        role: name of the learner in the log.

    Raises:
        UnknownNameError: no such backend is registered.
        BackendError: the backend cannot do the task; the text says why.
    """
    learner, name, reason = _find_learner(backend, task)
    logging.getLogger("rlox").info("%s is %s (%s)", role, name, reason)
    return learner, name, reason


def _find_learner(backend: str, task: Any) -> tuple[Any, str, str]:
    found = registry.get_registry()
    if backend != "auto":
        try:
            learner = found.get("rlox_learner_backends", backend).build(task)
        except BackendError as error:
            raise BackendError(
                f"the learner backend '{backend}' cannot do this: {error}; "
                "backend='auto' takes one that can"
            ) from None
        return learner, backend, "as configured"
    refusals = []
    for registration in found.by_priority("rlox_learner_backends"):
        name = registration.spec.name
        try:
            learner = registration.build(task)
        except BackendError as error:
            refusals.append(f"not {name}: {error}")
            continue
        return learner, name, "; ".join(refusals) or "the fastest there is"
    raise BackendError(f"no learner backend can do this: {'; '.join(refusals) or 'none installed'}")


Array = npt.NDArray[Any]


@dataclass(frozen=True)
class BoundedSurrogate:
    """PPO's loss with a bounded value loss: Huber's, linear with slope 1 above a distance of 1.

        L_π = mean min(A r, A clip(r, 1 - ε, 1 + ε)), and max(·, d A) where A < 0
        loss = c_1 mean min(huber(V - G), v) - L_π - c_2 mean H

    Above v the value loss has no gradient.
    """

    clip_eps: float
    """Clip range ε of the probability ratio."""
    vf_bound: float
    """Bound v of a row's value loss."""
    vf_coef: float
    """Weight c_1 of the value loss."""
    ent_coef: float
    """Weight c_2 of the entropy bonus, in 1/nats."""
    dual_clip: float | None = None
    """Bound d of the objective at negative advantages; ``None``: off."""


@dataclass(frozen=True)
class PerceptronTask:
    """A policy and a value function that are perceptrons over one vector, as data.

    Each is a stack of linear layers with one activation between them, over an observation or over
    the outputs of a shared memory. A ``Discrete`` policy has one logit per action; any other is
    Gaussian with independent components: first the means, then outputs whose tanh is the
    logarithm of the standard deviations.
    """

    model: nn.Module
    """Module that holds all layers and no other computation."""
    actor: tuple[nn.Linear, ...]
    """Maps observations or the memory's outputs to the parameters of the action distribution."""
    critic: tuple[nn.Linear, ...]
    """Maps the same inputs to the value."""
    activation: type[nn.Module]
    """Activation between layers."""
    discrete: bool
    """Whether actions are discrete."""
    envs: VecEnv | None = None
    """Envs that :meth:`Perceptrons.collect` steps, if the backend supports them."""
    memory: nn.LSTM | None = None
    """Memory between observations and both; its state (S) is the hidden, then the cell state."""
    replaced: tuple[Any, ...] = ()
    """Functions and classes that are not called when a backend acts and learns."""


class Perceptrons(Protocol):
    """Acts and learns with a task's layers, whose current parameters it reads in every call."""

    @property
    def steps_envs(self) -> bool:
        """Whether :meth:`collect` is supported."""

    def require_unchanged(self) -> None:
        """Check that the model still computes the task.

        Raises:
            BackendError: the model has its own hooks or methods.
        """

    def collect(self, noise: Array | None, obs: Array, rows: Mapping[str, Array]) -> None:
        """Step N envs T times with the policy.

        Args:
            noise: (T, N, A) float32, drawn in advance: standard normal numbers for A components, or
                exponential ones for A discrete actions (the largest ratio of probability to noise
                is taken); ``None`` takes the modes.
            obs: (T + 1, N, D) float32; the first row is acted on first, the others are outputs.
            rows: outputs: ``actions`` (T, N) int64 or (T, N, A) float32; (T, N) float32
                ``log_probs``, ``rewards`` and ``final_values``, 0 except where an episode was cut;
                and ``terminated`` and ``truncated``, bool.
        """

    def holding(self) -> AbstractContextManager[None]:
        """Use the parameters from the start of the block in all acting calls within it.

        Those are :meth:`remember`, :meth:`act` and :meth:`values`.
        """

    def remember(self, obs: Array, state: Array) -> Array:
        """Update the memory with one observation per row.

        Args:
            obs: (N, D)
            state: (N, S) before the observations.

        Returns:
            (N, S) after them.
        """

    def act(self, seen: Array, noise: Array | None) -> tuple[Array, Array]:
        """Return actions (N,) or (N, A), and their log-probabilities (N,).

        Args:
            seen: observations (N, D), or states (N, S) after them.
            noise: (N, A), see :meth:`collect`; ``None`` takes the modes.
        """

    def values(self, seen: Array) -> Array:
        """Return values (R,) of observations (R, D), or of states (R, S) after them."""

    def differentiate(
        self, rows: Mapping[str, Array], objective: BoundedSurrogate
    ) -> dict[str, float]:
        """Compute the gradient of the mean loss of R rows.

        Args:
            rows: ``obs`` (R, D), ``actions`` (R,) or (R, A), and (R,) ``log_probs`` of the acting
                policy, ``advantages`` and ``returns``. With a memory the rows are R / n steps of n
                sequences, step 0 of all first; ``initial_state`` (n, S) precedes them, and
                ``episode_starts`` (R,) bool marks where the state is 0 instead.
            objective: the loss.

        Returns:
            Means of ``policy_loss``, ``value_loss``, ``entropy`` and ``approx_kl``.
        """

    def add_gradient(self, weight: float) -> None:
        """Add ``weight`` times the last gradient to the parameters' ``grad``."""


def choose_perceptrons(backend: str, task: PerceptronTask) -> tuple[Perceptrons, str, str]:
    """Return the backend's model of the task, the name of the backend and the reason for it.

    Raises:
        UnknownNameError: no such backend is registered.
        BackendError: the backend cannot do the task; the text says why.
    """
    return find_learner(backend, task, role="what runs the perceptrons")
