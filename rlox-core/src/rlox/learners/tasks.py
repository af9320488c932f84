"""The choice of a learner backend, and tasks whose policies are perceptrons."""

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
    """An actor and a critic that are perceptrons of inputs of their own.

    A policy whose class has a method ``perceptrons`` returns it, so that a learner backend can do
    what the policy does in torch; ``None`` if it does more. A subclass does not inherit it.
    """

    actor: Any
    """:class:`rlox.nn.MLP` from its inputs to the outputs of the action head."""
    critic: Any
    """:class:`rlox.nn.MLP` from its inputs to one value."""
    inputs: Callable[[Any], tuple[Tensor, Tensor]]
    """From observations of B steps to the inputs (B, n) of both; it has no parameters."""
    action_space: Any
    """Of the policy. Numbers are drawn from a Gaussian whose log standard deviations are the
    policy's first parameters; :class:`rlox.nn.ActionHead` says what the outputs of choices are."""


def find_learner(backend: str, task: Any, *, role: str = "the learner") -> tuple[Any, str, str]:
    """Return a learner, the name of its backend and why it was chosen, and log the latter two.

    Args:
        backend: registered name; ``"auto"`` takes the one of highest priority that can do the task.
        task: what is to be learnt, a :class:`rlox.learners.rollouts.RolloutTask` or a
            :class:`rlox.learners.transitions.ReplayTask`.
        role: what the log calls it.

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
    """PPO's loss with a bounded value loss, Huber's of slope 1 from a distance of 1 on.

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

    Either is linear layers with one activation between them, over an observation, or over the
    outputs of a memory that both share. A policy of choices has a logit for each; another is
    Gaussian with independent components: their means come first, then outputs whose tanh is the
    logarithm of their deviations.
    """

    model: nn.Module
    """Holds all layers and nothing else that computes."""
    actor: tuple[nn.Linear, ...]
    """From observations or the memory's outputs to what the policy is made of."""
    critic: tuple[nn.Linear, ...]
    """From the same to the value."""
    activation: type[nn.Module]
    """Between layers."""
    discrete: bool
    """Whether actions are choices."""
    envs: VecEnv | None = None
    """Stepped by :meth:`Perceptrons.collect`, if the backend can."""
    memory: nn.LSTM | None = None
    """Between observations and both; its state (S) is the hidden, then the cell state."""
    replaced: tuple[Any, ...] = ()
    """Functions and classes that are not called where a backend acts and learns."""


class Perceptrons(Protocol):
    """Acts and learns with the layers of a task, whose values of now it reads in every call."""

    @property
    def steps_envs(self) -> bool:
        """Whether :meth:`collect` is possible."""

    def require_unchanged(self) -> None:
        """Check that the model still computes what the task says.

        Raises:
            BackendError: it has hooks or methods of its own.
        """

    def collect(self, noise: Array | None, obs: Array, rows: Mapping[str, Array]) -> None:
        """Step N envs T times with the policy.

        Args:
            noise: (T, N, A) float32, drawn before: standard normal numbers of A components, or
                exponential ones of A choices, of which that with the largest quotient of
                probability and number is taken; ``None`` takes the modes.
            obs: (T + 1, N, D) float32, whose first row is acted on first; the others are written.
            rows: written: ``actions`` (T, N) int64 or (T, N, A) float32, and (T, N) ``log_probs``,
                ``rewards``, ``final_values``, 0 but where an episode was cut, all float32, and
                ``terminated`` and ``truncated``, bool.
        """

    def holding(self) -> AbstractContextManager[None]:
        """Take the parameters at the start of a block in all calls within it that act.

        Those are :meth:`remember`, :meth:`act` and :meth:`values`.
        """

    def remember(self, obs: Array, state: Array) -> Array:
        """Take in one observation each with the memory.

        Args:
            obs: (N, D)
            state: (N, S) before it.

        Returns:
            (N, S) after it.
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
            rows: ``obs`` (R, D), ``actions`` (R,) or (R, A), and (R,) ``log_probs`` of the policy
                that acted, ``advantages`` and ``returns``. With a memory they are R / n steps of n
                sequences, step 0 of all first; ``initial_state`` (n, S) is before those, and
                ``episode_starts`` (R,) bool flags where the state is 0 instead.
            objective: the loss.

        Returns:
            Means of ``policy_loss``, ``value_loss``, ``entropy`` and ``approx_kl``.
        """

    def add_gradient(self, weight: float) -> None:
        """Add ``weight`` times the last gradient to the parameters' ``grad``."""


def choose_perceptrons(backend: str, task: PerceptronTask) -> tuple[Perceptrons, str, str]:
    """Return what runs the task, the name of its backend and why it was chosen.

    Raises:
        UnknownNameError: no such backend is registered.
        BackendError: the backend cannot do the task; the text says why.
    """
    return find_learner(backend, task, role="what runs the perceptrons")
