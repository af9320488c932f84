"""The choice of a learner backend, and perceptrons of a policy that one may replace."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt
from torch import Tensor, nn

from rlox import registry
from rlox.errors import BackendError


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
    found, hook, automatic = registry.get_registry(), "rlox_learner_backends", backend == "auto"
    refusals = []
    for registration in found.by_priority(hook) if automatic else [found.get(hook, backend)]:
        name = registration.spec.name
        try:
            learner = registration.build(task)
        except BackendError as error:
            if not automatic:
                raise BackendError(
                    f"the learner backend '{backend}' cannot do this: {error}; "
                    "backend='auto' takes one that can"
                ) from None
            refusals.append(f"not {name}: {error}")
            continue
        reason = "; ".join(refusals) or "the fastest there is" if automatic else "as configured"
        logging.getLogger("rlox").info("%s is %s (%s)", role, name, reason)
        return learner, name, reason
    raise BackendError(f"no learner backend can do this: {'; '.join(refusals) or 'none installed'}")


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

    Each is a stack of linear layers with one activation between them. A ``Discrete`` policy has one
    logit per action; any other is Gaussian with independent components: first the means, then
    outputs whose tanh is the logarithm of the standard deviations.
    """

    model: nn.Module
    """Module that holds all layers and no other computation."""
    actor: tuple[nn.Linear, ...]
    """Maps observations to the parameters of the action distribution."""
    critic: tuple[nn.Linear, ...]
    """Maps observations to the value."""
    activation: type[nn.Module]
    """Activation between layers."""
    discrete: bool
    """Whether actions are discrete."""
    replaced: tuple[Any, ...] = ()
    """Functions and classes that are not called when a backend learns."""


class Perceptrons(Protocol):
    """Differentiates a task's layers, whose current parameters it reads in every call."""

    def require_unchanged(self) -> None:
        """Check that the model still computes the task.

        Raises:
            BackendError: the model has its own hooks or methods.
        """

    def add_gradient(
        self, rows: Mapping[str, npt.NDArray[Any]], objective: BoundedSurrogate, weight: float
    ) -> dict[str, float]:
        """Add ``weight`` times the gradient of the mean loss of R rows to the parameters' ``grad``.

        Args:
            rows: ``obs`` (R, D), ``actions`` (R,) or (R, A), and (R,) ``log_probs`` of the acting
                policy, ``advantages`` and ``returns``.
            objective: the loss.
            weight: of the gradient.

        Returns:
            Means of ``policy_loss``, ``value_loss``, ``entropy`` and ``approx_kl``.
        """
